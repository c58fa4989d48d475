-- The receipt of a lane: the last reply of a client's lane, so that a call that is sent again gets the answer of its
-- first execution.  A receipt is 'call:reply;', and what follows is left of an older one.  A call's name is its number
-- in the lane, a dot and a check of what it is about, so that another call with the same number is not mistaken for it.
-- receipt_text.lua writes that form; read_receipt.lua and this file read it, with the constants of format.lua.
-- Only the reply of a call that changed something is kept, and that of a commit whose claim was gone: any other call
-- replies the same when it is executed again.
-- include: format
-- include: answer

-- The reply of a lane's call that its receipt holds, or nil; and whether the receipt is that of another call, which
-- is not older.  Finding a reply counts as a write, for the sake of a client that waits for replicas; where the server
-- refuses that, nobody misses it.
local function recall(receipt, number)
  local kept = redis.pcall('GET', receipt)
  -- paste: read_receipt
  if not kept or not answered then
    return nil, false
  elseif type(kept) == 'table' then
    if not tostring(kept.err):find('WRONGTYPE') then
      redis.call('GET', receipt)  -- is refused, and says why
    end
    return nil, true  -- a key of another type, which is left alone
  elseif kept:sub(1, #number + 1) ~= number .. ':' then
    return nil, true
  end
  redis.pcall('PEXPIRE', receipt, redis.call('PTTL', receipt))
  return kept:match('^[^;]*', #number + 2), false
end

-- The reply to a call that must not be executed: one that has been, or was given up by `replay_item`, or a late copy,
-- since a lane has no later call before this one is answered; or one without a number.  Nil for a call to execute.
local function replay(receipt, number)
  if not receipt then
    return nil
  elseif not number or not number:find('^%d') then
    return error_reply('BLOOMARGUMENT a call with a receipt needs its number in the lane')
  end
  local kept, gone_on = recall(receipt, number)
  if gone_on or kept == '' then
    return error_reply(GONE_ON)
  end
  return kept and answer(kept)
end
