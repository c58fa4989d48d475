-- Receipts: the last reply of a client's lane, so that a call that is sent again gets the answer of its first
-- execution.  A receipt is 'call:reply'.  A call's name is its number in the lane, a dot and a check of what it is
-- about, so that another call with the same number is not mistaken for it.  Only the reply of a call that changed
-- something is kept: any other call replies the same when it is executed again.
-- include: format
-- include: answer

local function number_of(call)
  return tonumber(call:match('^%d+')) or 0
end

-- The reply of a lane's call that its receipt holds, or nil; and whether the receipt is that of another call, which
-- is not older.  A call that was begun and has no reply was refused before its first write.  Finding a reply counts
-- as a write, for the sake of a client that waits for replicas; where the server refuses that, nobody misses it.
local function recall(receipt, call)
  local kept = redis.pcall('GET', receipt)
  if not kept then
    return nil, false
  elseif type(kept) == 'table' then
    if not tostring(kept.err):find('WRONGTYPE', 1, true) then
      redis.call('GET', receipt)  -- is refused, and says why
    end
    return nil, true  -- a key of another type, which is left alone
  elseif kept == call .. BEGUN then
    return nil, false
  elseif kept:sub(1, #call + 1) == call .. ':' then
    redis.pcall('PEXPIRE', receipt, redis.call('PTTL', receipt))
    return kept:sub(#call + 2), false
  end
  return nil, number_of(kept) >= number_of(call)
end

-- Keep a reply; for no longer than `lasting` ms, if items of the filter expire after that time.
local function keep(receipt, call, reply, lasting)
  if receipt then
    redis.call('SET', receipt, call .. ':' .. reply, 'PX', math.min(RECEIPT_MS, lasting or RECEIPT_MS))
  end
end

-- Make sure that nothing refuses the writes to follow, before the first of them: a right that is missing, a full
-- memory, a lost quorum.
local function begin(filter, receipt, call, lasting)
  if not filter.is_module then
    redis.call('SETRANGE', filter.key, 0, '')
  end
  keep(receipt, call, BEGUN:sub(2), lasting)
end

-- The reply to a call that must not be executed: one that has been, or was given up by `replay_item`, or a late copy,
-- since a lane has no later call before this one is answered; or one without a number.  Nil for a call to execute.
local function replay(receipt, call)
  if not receipt then
    return nil
  elseif not call or not call:match('^%d+') then
    return redis.error_reply('BLOOMARGUMENT a call with a receipt needs its number in the lane')
  end
  local kept, gone_on = recall(receipt, call)
  if gone_on or kept == '' then
    return redis.error_reply('BLOOMLANE the lane has gone on since this call')
  end
  return kept and answer(kept)
end

-- The same for an item of an earlier call, which has a receipt of its own: the answer that the earlier call gave,
-- at `index` in its reply.  An earlier call that was not executed never will be from now on, whenever it arrives.
-- `short` says that its reply may have ended before the item.
local function replay_item(receipt, call, index, short)
  if not receipt then
    return nil
  elseif not call or not index then
    return redis.error_reply('BLOOMARGUMENT an earlier call needs its number in the lane, and the index of the item')
  end
  local kept, gone_on = recall(receipt, call)
  if kept and index < #kept then
    return answer(kept:sub(index + 1, index + 1))
  elseif kept and #kept > 0 and not short then
    return redis.error_reply('BLOOMARGUMENT the earlier call had no item at this index')
  elseif not kept and not gone_on then
    keep(receipt, call, '')
  end
end
