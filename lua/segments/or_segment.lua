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
--
-- Commands of one: GETRANGE 1, STRLEN 1, GET 4, GETBIT 1, PTTL 4, SETRANGE 4, BITCOUNT 1, GETRANGE 1, UNLINK 2,
--                  BITOP 3, GET 3, SET 2, SET 3, BITOP 3, GET 3, BITCOUNT 3, BITCOUNT 2, UNLINK 2, SETRANGE 1, PTTL 4,
--                  SETRANGE 4

-- include: num_bits
-- include: numbers
-- include: format
-- include: decimals
-- include: or_bytes
-- include: receipts

local READS, CELL_BITS = false, #ARGV[1] == IDENTITY_BYTES and ARGV[1]:byte(11) == COUNTING and 4 or 1
local BAD_ITEMS = 'BLOOMARGUMENT the segment is empty, too long, or lies outside the filter'
local call, key, identity, first, segment = redis.call, KEYS[1], ARGV[1], read_number(ARGV[2], 0), ARGV[3]
-- paste: open
local receipt, number = own and own >= 4 and KEYS[4], ARGV[4]
local replayed = replay(receipt, number)
if replayed then
  return replayed
elseif fit and CELL_BITS > 1 then
  return error_reply('BLOOMARGUMENT counters are raised one by one')
elseif fit and (ended or is_over) then
  return error_reply('BLOOMFULL the slice of the newest layer is over')
elseif not fit or not first or not segment or #segment < 1 or #segment > MAX_BYTES
  or first + #segment > math.ceil(num_bits_of(header) / 8) then
  -- rare: refuse
  return refusal
end
-- paste: prepare
if receipt then
  local reply = nil
  -- paste: begin
end
local old, added = or_bytes(key, first_bit / 8 + first, segment, KEYS[2], KEYS[3]), 0
-- paste: note
keep(receipt, number, 1, lasting)
return old
