-- Read a segment of a filter's bits; change nothing.
--
-- KEYS[1]  the filter; the hash of its parameters comes last, if it has one (FORMAT.md)
-- ARGV[1]  the identity of the filter that the caller knows (56 bytes)
-- ARGV[2]  the first byte of the segment, counted from the first byte of the bits
-- ARGV[3]  the number of bytes
--
-- Reply: the bytes; fewer at the end of the bits
--
-- Commands: GETRANGE 1, STRLEN 1, GETRANGE 1

-- include: decimals
-- include: header

local key, identity, first, count = KEYS[1], ARGV[1], read_number(ARGV[2], 0), read_number(ARGV[3], 1)

local filter, refusal = open_filter(key, identity, KEYS)
if not filter then
  return refusal
elseif not first or not count then
  return redis.error_reply('BLOOMARGUMENT a segment has a first byte and a number of bytes')
end
local start = filter.first_bit / 8 + first
return redis.call('GETRANGE', key, start, start + count - 1)
