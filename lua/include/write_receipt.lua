-- Keep the reply `kept` of the lane's call `number` in its receipt; for no longer than `lasting` ms, if that is not
-- nil, since items of the filter expire after that time.  A receipt that lasts for long enough is written over, which
-- takes the server half of the time that SET with a time to live does; a key of another type is left alone.  Needs
-- format, and the locals receipt, number, kept and lasting.
local renews = lasting or redis.call('PTTL', receipt) < LASTING_MS
local refused = redis.pcall('SETRANGE', receipt, 0, renews and '' or number .. kept)
if type(refused) == 'table' then
  error(tostring(refused.err):find('WRONGTYPE') and GONE_ON or refused.err, 0)
elseif renews then
  redis.call('SET', receipt, number .. kept, 'PX', math.min(RECEIPT_MS, lasting or RECEIPT_MS))
end
