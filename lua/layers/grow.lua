-- Begin the next bitmap of a growing chain, if the last one is more than half full; reply which is the last then.
--
-- KEYS[1]  the cursor, which counts the bitmaps
-- KEYS[2]  the bitmap that the caller knows as the last
-- ARGV[1]  the value of the cursor that the caller knows
-- ARGV[2]  the description of the bitmap (32 bytes)
--
-- Reply: the value of the cursor now

-- include: numbers
-- include: format
-- include: header
-- include: chain

local cursor, key, expected, description = KEYS[1], KEYS[2], read_number(ARGV[1], 0), ARGV[2]

if not expected or not description or #description ~= BITMAP_BYTES then
  return redis.error_reply('BLOOMARGUMENT the cursor or the description of the bitmap is malformed')
end
local filter, refusal = open_filter(key, description)
if not filter then
  return refusal
end
if read_cursor(cursor) == expected and bits_left(filter) < 0 then
  return redis.call('INCR', cursor)
end
return read_cursor(cursor)
