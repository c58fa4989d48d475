-- Receipts: the last reply of a client's lane, so that a call that is sent again gets the answer of
-- its first execution.  A receipt is 'number:reply', number being the call's in its lane.  Only the reply of a
-- call that changed something is kept: the other ones come out the same when they are made again.

-- The error reply for a call that has a receipt and no number, nil for any other.
local function check_number(key, number)
  if key and not number then
    return redis.error_reply('BLOOMARGUMENT a call with a receipt needs its number in the lane, and the item its place')
  end
end

-- The reply of an earlier execution of the call, or nil; with nil an error reply if the lane has had a later
-- call since, so that nobody waits for this one.  Finding a reply counts as a write, for the sake of a client
-- that waits for replicas.
local function recall(key, number)
  local kept = key and redis.call('GET', key)
  if not kept then
    return nil
  elseif kept:sub(1, #number + 1) == number .. ':' then
    redis.call('PEXPIRE', key, redis.call('PTTL', key))
    return kept:sub(#number + 2)
  elseif (tonumber(kept:match('^%d+')) or 0) > (tonumber(number) or 0) then
    return nil, redis.error_reply('BLOOMARGUMENT the lane has gone on since this call')
  end
end

-- Keep a reply.  Where items are forgotten after `lasting` ms their receipts need not last longer.
local function keep(key, number, reply, lasting)
  if key then
    redis.call('SET', key, number .. ':' .. reply, 'PX', math.min(RECEIPT_MS, lasting or RECEIPT_MS))
  end
end
