-- Receipts: the last reply of a client's lane, so that a call that is sent again gets the answer of its first
-- execution.  A receipt is 'number:reply' with the number of the call in its lane.  Only the reply of a call that
-- changed something is kept: any other call replies the same when it is executed again.
-- include: format
-- include: answer

-- The reply of a lane's call that its receipt holds, or nil; and whether the receipt is that of a later call.
-- Finding a reply counts as a write, for the sake of a client that waits for replicas.
local function recall(receipt, number)
  local kept = redis.call('GET', receipt)
  if not kept then
    return nil, false
  elseif kept:sub(1, #number + 1) == number .. ':' then
    redis.call('PEXPIRE', receipt, redis.call('PTTL', receipt))
    return kept:sub(#number + 2), false
  end
  return nil, (tonumber(kept:match('^%d+')) or 0) > (tonumber(number) or 0)
end

-- Keep a reply; for no longer than `lasting` ms, if items of the filter expire after that time.
local function keep(receipt, number, reply, lasting)
  if receipt then
    redis.call('SET', receipt, number .. ':' .. reply, 'PX', math.min(RECEIPT_MS, lasting or RECEIPT_MS))
  end
end

-- The reply to a call that must not be executed: one that has been, or a late copy, since a lane has no later call
-- before this one is answered; or one without a number.  Nil for a call to execute.
local function replay(receipt, number)
  if not receipt then
    return nil
  elseif not number then
    return redis.error_reply('BLOOMARGUMENT a call with a receipt needs its number in the lane')
  end
  local kept, gone_on = recall(receipt, number)
  if gone_on then
    return redis.error_reply('BLOOMARGUMENT the lane has gone on since this call')
  end
  return kept and answer(kept)
end

-- The same for an item of an earlier call, which has a receipt of its own: the answer that the earlier call gave,
-- at `index` in its reply.  An earlier call that was not executed never will be from now on, whenever it arrives.
-- `short` says that its reply may have ended before the item.
local function replay_item(receipt, number, index, short)
  if not receipt then
    return nil
  elseif not number or not index then
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
