-- Add to the item count, for items whose bits other scripts set.
--
-- KEYS[1]  the filter, or the newest of its layers (further keys come last: FORMAT.md)
-- KEYS[2]  the receipt of this call's session; absent if the call need not be safe to retry
-- ARGV[1]  the identity of the filter that the caller knows (56 bytes)
-- ARGV[2]  the number of new items; negative to correct a count that was too high
-- ARGV[3]  with KEYS[2]: the name of this call: its number in the session, a dot and a checksum (FORMAT.md)
--
-- Reply: the number that was added; at most the room of the newest of several layers, or of a capped filter
--
-- Commands of one: GETRANGE 1, STRLEN 1, GET 2, GETBIT 1, PTTL 2, SETRANGE 2, SETRANGE 1, PTTL 2, SETRANGE 2

-- include: numbers
-- include: format
-- include: room
-- include: decimals
-- include: receipts

local READS, CELL_BITS = false, #ARGV[1] == IDENTITY_BYTES and ARGV[1]:byte(11) == COUNTING and 4 or 1
local BAD_ITEMS = 'BLOOMARGUMENT the number of new items must be an integer'
local call, key, identity, added, number = redis.call, KEYS[1], ARGV[1], read_number(ARGV[2], -2 ^ 53), ARGV[3]
-- paste: open
local receipt = own and own >= 2 and KEYS[2]
local replayed = replay(receipt, number)
if replayed then
  return tonumber(replayed) or replayed
elseif not fit or not added then
  -- rare: refuse
  return refusal
end
-- paste: limit
if has_ended or added > 0 and room and room < 1 then
  return error_reply(NO_ROOM)
end
-- paste: prepare
added = added > 0 and math.min(added, room or added) or added
local reply = nil
-- paste: begin
-- paste: note
keep(receipt, number, string.format('%.0f', added), lasting)
return added
