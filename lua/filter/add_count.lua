-- Add to the item count, for items whose bits other scripts set.
--
-- KEYS[1]  the filter, or the newest of its layers (further keys come last: FORMAT.md)
-- KEYS[2]  the receipt of this call's session; absent if the call need not be safe to retry
-- ARGV[1]  the identity of the filter that the caller knows (56 bytes)
-- ARGV[2]  the number of new items; negative to correct a count that was too high
-- ARGV[3]  with KEYS[2]: the name of this call: its number in the session, a dot and a checksum (FORMAT.md)
--
-- Reply: the number that was added; at most the room of the newest of several layers

-- include: decimals
-- include: header
-- include: layers or one_layer
-- include: receipts

local identity, added, number = ARGV[1], read_number(ARGV[2], -2 ^ 53), ARGV[3]
local receipt = #KEYS - extra_keys(identity) >= 2 and KEYS[2]

local replayed = replay(receipt, number)
if replayed then
  return tonumber(replayed) or replayed
end
local filter, refusal = open_layers(KEYS, identity)
if not filter then
  return refusal
elseif not added then
  return redis.error_reply('BLOOMARGUMENT the number of new items must be an integer')
elseif filter.has_ended or added > 0 and filter.room and filter.room < 1 then
  return redis.error_reply('BLOOMFULL the newest layer has no room for new items')
end
local counted = added > 0 and math.min(added, filter.room or added) or added
begin(filter, receipt, number, filter.lasting)
note_written(filter, counted)
keep(receipt, number, string.format('%.0f', counted), filter.lasting)
return counted
