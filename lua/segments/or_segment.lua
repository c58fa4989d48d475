-- OR a segment into a filter's bits; reply the bits that were there before.
--
-- KEYS[1]  the filter; the hash of its parameters comes last, if it has one (FORMAT.md)
-- KEYS[2]  a free name for a temporary key
-- KEYS[3]  another
-- ARGV[1]  the identity of the filter that the caller knows (56 bytes)
-- ARGV[2]  the first byte of the segment, counted from the first byte of the bits
-- ARGV[3]  the segment
--
-- Reply: the previous bytes; fewer at the end of a string that is shorter

-- include: decimals
-- include: numbers
-- include: header
-- include: or_bytes

local key, old_key, new_key = KEYS[1], KEYS[2], KEYS[3]
local identity, first, segment = ARGV[1], read_number(ARGV[2], 0), ARGV[3]

local filter, refusal = open_filter(key, identity, KEYS)
if not filter then
  return refusal
elseif filter.cell_bits > 1 then
  return redis.error_reply('BLOOMARGUMENT counters are raised one by one')
elseif not first or not segment or #segment < 1 or #segment > MAX_BYTES
  or first + #segment > math.ceil(num_bits_of(filter.header) / 8) then
  return redis.error_reply('BLOOMARGUMENT the segment is empty, too long, or lies outside the filter')
end

local old = or_bytes(filter, first, segment, old_key, new_key)
note_added(filter, 0)
return old
