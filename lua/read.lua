-- Read a piece of a filter's bits, without changing them.
--
-- KEYS[1]  the filter
-- ARGV[1]  the identity of the filter that the caller knows (56 bytes)
-- ARGV[2]  the first byte of the piece, counted from the first of the bits
-- ARGV[3]  how many bytes
--
-- Reply: the bytes; fewer at the end of the bits

-- include: numbers
-- include: format
-- include: header

local key, identity, first, count = KEYS[1], ARGV[1], read_number(ARGV[2], 0), read_number(ARGV[3], 1)

local filter, refusal = open_filter(key, identity)
if not filter then
  return refusal
elseif not first or not count then
  return redis.error_reply('BLOOMARGUMENT a piece has a first byte and a number of bytes')
end
local start = filter.first_bit / 8 + first
return redis.call('GETRANGE', key, start, start + count - 1)
