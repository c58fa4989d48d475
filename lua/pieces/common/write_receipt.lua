-- Store the `reply` of the session's call `number` in its receipt, which must have been read; for at most `lasting` ms,
-- if that is not nil, since items of the filter expire after that time.  A receipt with enough time to live is
-- overwritten in place, which takes half the time of SET with a time to live.  Otherwise an empty SETRANGE comes first,
-- so that a user without this right, which later writes need, changes nothing.  Needs format, and the locals receipt,
-- number, reply and lasting.
-- paste: receipt_text
if lasting or redis.call('PTTL', receipt) < LASTING_MS then
  redis.call('SETRANGE', receipt, 0, '')
  redis.call('SET', receipt, text, 'PX', lasting or RECEIPT_MS)
else
  redis.call('SETRANGE', receipt, 0, text)
end
