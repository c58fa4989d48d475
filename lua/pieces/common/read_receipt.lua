-- Sets `answered` if, by the value `kept` of a session's receipt, the call `number` was answered or the session has a
-- later call.  The call is not answered if the receipt is missing, belongs to an older call, or has no reply to this
-- call, which the server then refused before its first write.  A call without a number counts as answered, so that it
-- is refused.  Needs format, and the locals kept and number.
local at = number and tonumber(number:match('^%d+'))
local answered = not at or kept and (type(kept) ~= 'string'
  or (tonumber(kept:match('^%d+')) or 0) >= at and kept:find(number .. BEGUN, 1, true) ~= 1)
