-- Keep the `reply` of the lane's call `number` in its receipt, which has been read; for no longer than `lasting` ms, if
-- that is not nil, since items of the filter expire after that time.  A receipt that lasts for long enough is written
-- over, which takes the server half of the time that SET with a time to live does.  Needs format, and the locals receipt,
-- number, reply and lasting.
-- paste: receipt_text
if lasting or redis.call('PTTL', receipt) < LASTING_MS then
  redis.call('SET', receipt, text, 'PX', math.min(RECEIPT_MS, lasting or RECEIPT_MS))
else
  redis.call('SETRANGE', receipt, 0, text)
end
