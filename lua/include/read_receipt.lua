-- Read the receipt of the lane's call `number`: what was `kept`, and whether the call was `answered`, or its lane has
-- gone on; not if the receipt is that of an older call, or of this one where it was refused before its first write.
-- Needs format, and the locals receipt and number.
local kept = redis.pcall('GET', receipt)
local answered = kept and (type(kept) ~= 'string'
  or (tonumber(kept:match('^%d+')) or 0) >= (tonumber(number:match('^%d+')) or 0)
  and kept:find(number .. BEGUN, 1, true) ~= 1)
