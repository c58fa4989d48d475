-- OR a segment into a filter's bits; reply the previous bits.
--
-- KEYS[1]  the filter, or the newest of its layers (further keys come last: FORMAT.md)
-- KEYS[2]  a free name for a temporary key
-- KEYS[3]  a second free name
-- KEYS[4]  the receipt of this call's session; absent if the reply to a resent call may count the call's own bits
-- ARGV[1]  the identity of the filter that the caller knows (56 bytes)
-- ARGV[2]  the first byte of the segment, counted from the first byte of the bits
-- ARGV[3]  the segment
-- ARGV[4]  with KEYS[4]: the name of this call: its number in the session, a dot and a checksum (FORMAT.md)
--
-- Reply: the previous bytes; fewer if the string ends before, and none if no bit of them was set.  With a receipt, 1 if
--        the call was executed before.

-- include: decimals
-- include: numbers
-- include: header
-- include: or_bytes
-- include: layers or one_layer
-- include: receipts

local receipt, number = #KEYS - extra_keys(ARGV[1]) >= 4 and KEYS[4], ARGV[4]
local replayed = replay(receipt, number)
if replayed then
  return replayed
end
local old_key, new_key, identity, first, segment = KEYS[2], KEYS[3], ARGV[1], read_number(ARGV[2], 0), ARGV[3]

local filter, refusal = open_layers(KEYS, identity)
if not filter then
  return refusal
elseif filter.cell_bits > 1 then
  return redis.error_reply('BLOOMARGUMENT counters are raised one by one')
elseif filter.layers and not filter.room then
  return redis.error_reply('BLOOMARGUMENT of several bitmaps only the layers of a record take segments')
elseif filter.is_over then
  return redis.error_reply('BLOOMFULL the slice of the newest layer is over')
elseif not first or not segment or #segment < 1 or #segment > MAX_BYTES
  or first + #segment > math.ceil(num_bits_of(filter.header) / 8) then
  return redis.error_reply('BLOOMARGUMENT the segment is empty, too long, or lies outside the filter')
end

if receipt then
  begin(filter, receipt, number, filter.lasting)
end
local old = or_bytes(filter, first, segment, old_key, new_key)
note_added(filter, 0)
keep(receipt, number, 1, filter.lasting)
return old
