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
