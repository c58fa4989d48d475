-- Keep the reply `kept` of the lane's call `number` in its receipt; for no longer than `lasting` ms, if that is not
-- nil, since items of the filter expire after that time.  A receipt that lasts for long enough is written over, which
-- takes the server half of the time that SET with a time to live does.  Needs format, and the locals receipt, number,
-- kept and lasting.
local left = redis.call('PTTL', receipt)
if lasting or left == -2 then
  redis.call('SET', receipt, number .. kept, 'PX', math.min(RECEIPT_MS, lasting or RECEIPT_MS))
else
  local refused = redis.pcall('SETRANGE', receipt, 0, number .. kept)
  if type(refused) == 'table' then
    error(refused.err:find('WRONGTYPE') and GONE_ON or refused.err, 0)
  elseif left < LASTING_MS then
    redis.call('PEXPIRE', receipt, RECEIPT_MS)
  end
end
