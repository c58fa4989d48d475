-- Receipts of calls (session.lua): written before a call's first write and after its last, and read by retries.
-- include: format
-- include: numbers
-- include: answer
-- include: session

-- Store the reply of a call in its receipt; nil says that the call has no reply yet.
local function keep(receipt, number, reply, lasting)
  if receipt then
    -- paste: write_receipt
  end
end

-- Let the server refuse the call before its first change: for a missing right, a full memory, a lost quorum, or a
-- string longer than it allows (proto-max-bulk-len), which it checks wherever it reads a bit.  These commands change
-- nothing; a `filter` of the module contains its marker, so adding the marker changes nothing.
local function begin(filter, receipt, number, lasting)
  if filter.marker then
    redis.call('BF.ADD', filter.key, filter.marker)
  else
    redis.call('GETBIT', filter.key, filter.first_bit + num_bits_of(filter.header) * filter.cell_bits - 1)
    if filter.expires then
      redis.call('PEXPIRE', filter.key, filter.ttl)
    end
    if not receipt then
      redis.call('SETRANGE', filter.key, 0, '')
    end
  end
  keep(receipt, number, nil, lasting)
end

-- The answer of an earlier call about an item, at `index` in the reply in the earlier call's receipt.  If the earlier
-- call was not executed, mark its receipt so that it never will be, even if it arrives later.  Open the filter first,
-- since an answer about a lost filter is void.  `short` says that the reply may have ended before the item.
local function replay_item(receipt, number, index, short)
  if not number or not index then
    return redis.error_reply('BLOOMARGUMENT an earlier call needs its number in the session, and the index of the item')
  end
  local kept, gone_on = recall(receipt, number)
  if kept and index < #kept then
    return answer(kept:sub(index + 1, index + 1))
  elseif kept and #kept > 0 and not short then
    return redis.error_reply('BLOOMARGUMENT the earlier call had no item at this index')
  elseif not kept and not gone_on then
    keep(receipt, number, '')
  end
end
