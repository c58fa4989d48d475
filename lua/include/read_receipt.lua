-- Judge what was `kept` in the receipt of a lane, for its call `number`: whether the call was `answered`, or its lane
-- has gone on; not if the receipt is missing, that of an older call, or of this one where it was refused before its
-- first write.  A call without a number is to be refused, as if it was answered.  Needs format, and the locals kept and
-- number.
local at = number and tonumber(number:match('^%d+'))
local answered = not at or kept and (type(kept) ~= 'string'
  or (tonumber(kept:match('^%d+')) or 0) >= at and kept:find(number .. BEGUN, 1, true) ~= 1)
