-- Receipts of calls (lane.lua): written before a call's first write and after its last, and asked about again.
-- include: format
-- include: answer
-- include: lane

-- Keep the reply of a call, or that it has none yet if that is nil.
local function keep(receipt, number, reply, lasting)
  if receipt then
    -- paste: write_receipt
  end
end

-- Make sure that nothing refuses the writes to follow, before the first of them: a right that is missing, a full
-- memory, a lost quorum.  A `filter` of the module has a marker, which is there, so that adding it changes nothing.
local function begin(filter, receipt, number, lasting)
  if filter.marker then
    redis.call('BF.ADD', filter.key, filter.marker)
  end
  if receipt or not filter.marker then
    redis.call('SETRANGE', filter.marker and receipt or filter.key, 0, '')
  end
  keep(receipt, number, nil, lasting)
end

-- The reply to an item of an earlier call, which has a receipt of its own: the answer that the earlier call gave,
-- at `index` in its reply.  An earlier call that was not executed never will be from now on, whenever it arrives.
-- Who asks for that answer has opened the filter before: one about a filter that is gone is no answer by now.
-- `short` says that its reply may have ended before the item.
local function replay_item(receipt, number, index, short)
  if not number or not index then
    return redis.error_reply('BLOOMARGUMENT an earlier call needs its number in the lane, and the index of the item')
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
