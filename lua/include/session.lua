-- The receipt of a session: the last reply in the session, so that a retry gets the answer of the first execution.  A
-- receipt is 'call:reply;'; bytes after that remain of an older receipt.  A call's name is its number in the session, a
-- dot and a checksum over its contents, which distinguishes calls with the same number.  The piece receipt_text writes
-- this form; the piece read_receipt and this file read it, with the constants of format.lua.  A receipt stores the
-- reply of a call that changed something, or of a commit whose caller no longer held the claim.  Any other call replies
-- the same when it is executed again.
-- include: format
-- include: answer

-- The reply to the call `number` in its session's receipt, or nil; and whether the receipt belongs to another call that
-- is not older.  If the receipt has the reply, rewrite the receipt's time to live, so that a client that waits for
-- replicas has a write to wait for; the server may refuse this write without harm.
local function recall(receipt, number)
  local kept = redis.pcall('GET', receipt)
  -- paste: read_receipt
  if not kept or not answered then
    return nil, false
  elseif type(kept) == 'table' then
    if not tostring(kept.err):find('WRONGTYPE') then
      redis.call('GET', receipt)  -- raises the server's error
    end
    return nil, true  -- a key of another type is left alone
  elseif kept:sub(1, #number + 1) ~= number .. ':' then
    return nil, true
  end
  redis.pcall('PEXPIRE', receipt, redis.call('PTTL', receipt))
  return kept:match('^[^;]*', #number + 2), false
end

-- The reply to a call that must not be executed; nil for a call to execute.  A call must not be executed if it was
-- executed before, if `replay_item` has blocked it, if it has no number, or if its session has a later call: then it is
-- a delayed copy, since a session has no later call before this one is answered.
local function replay(receipt, number)
  if not receipt then
    return nil
  elseif not number or not number:find('^%d') then
    return error_reply('BLOOMARGUMENT a call with a receipt needs its number in the session')
  end
  local kept, gone_on = recall(receipt, number)
  if gone_on or kept == '' then
    return error_reply(GONE_ON)
  end
  return kept and answer(kept)
end
