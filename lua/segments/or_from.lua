-- OR a piece of another filter's bits into a filter's bits, inside the server.
--
-- KEYS[1]  the filter
-- KEYS[2]  the other filter, which is not changed
-- KEYS[3]  a free name for a temporary key
-- KEYS[4]  a second free name
-- ARGV[1]  the identity of the filter that the caller knows (56 bytes)
-- ARGV[2]  the identity of the other filter
-- ARGV[3]  the first byte of the piece, counted from the first byte of the bits
-- ARGV[4]  the number of bytes
--
-- Reply: the number of newly set bits; or -1 if the other filter has another identity
--
-- Commands: GETRANGE 1, STRLEN 1, GETRANGE 2, STRLEN 2, GETRANGE 2, BITCOUNT 1, GETRANGE 1, UNLINK 3, BITOP 4, GET 4,
--           SET 3, SET 4, BITOP 4, GET 4, UNLINK 3

-- include: decimals
-- include: num_bits
-- include: numbers
-- include: header
-- include: or_bytes

local key, other_key, old_key, new_key = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local identity, other_identity, first, count = ARGV[1], ARGV[2], read_number(ARGV[3], 0), read_number(ARGV[4], 1)

local filter, refusal = open_filter(key, identity)
if not filter then
  return refusal
end
local other = open_filter(other_key, other_identity)
if not other then
  return -1
elseif filter.cell_bits > 1 or other.cell_bits > 1 or num_bits_of(filter.header) ~= num_bits_of(other.header) then
  return redis.error_reply('BLOOMARGUMENT the filters count, or have different sizes')
elseif not first or not count or count > MAX_BYTES or first + count > math.ceil(num_bits_of(filter.header) / 8) then
  return redis.error_reply('BLOOMARGUMENT the piece is empty, too long, or lies outside the filter')
end
local start = other.first_bit / 8 + first
local piece = redis.call('GETRANGE', other_key, start, start + count - 1)
make_bits(filter)
local _, added = or_bytes(key, filter.first_bit / 8 + first, piece, old_key, new_key)
return added
