-- Set the bits of every item of a batch, and say which items were new.
--
-- KEYS[1]  the filter
-- KEYS[2]  the receipt of this call's lane; absent if the call need not be safe to send again
-- KEYS[3]  the receipt of the lane of an earlier call that had this one item and whose reply never
--          arrived; absent if there is none
-- ARGV[1]  the identity of the filter that the caller knows (56 bytes)
-- ARGV[2]  bit offsets as little-endian u32, num_hashes an item, item after item
-- ARGV[3]  with KEYS[2]: the number of this call in its lane
-- ARGV[4]  with KEYS[3]: the number of the earlier call in its lane
-- ARGV[5]  with KEYS[3]: the place of the item in the earlier call, from 0
--
-- Reply: for one item 1 (new) or 0 (already there); for more a string with such a character each

-- include: numbers
-- include: header
-- include: items
-- include: receipts

local key, receipt, earlier_receipt = KEYS[1], KEYS[2], KEYS[3]
local identity, packed, number, earlier_number = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
local place = read_number(ARGV[5], 0)

local misnumbered = check_number(receipt, number) or check_number(earlier_receipt, earlier_number and place)
if misnumbered then
  return misnumbered
end
local kept = recall(receipt, number)
if kept then
  return answer(kept)
end
local earlier = recall(earlier_receipt, earlier_number)
if earlier and place < #earlier then
  return answer(earlier:sub(place + 1, place + 1))
elseif earlier then
  return redis.error_reply('BLOOMARGUMENT the earlier call had no item at this place')
end
local filter, refusal = open_filter(key, identity)
if not filter then
  return refusal
end
local items, malformed = read_items(filter, packed)
if not items then
  return malformed
end

local answers, added = {}, 0
for i = 1, items.count do
  local new = items.set(i)
  answers[i] = new and '1' or '0'
  added = added + (new and 1 or 0)
end
local reply = table.concat(answers)
note_added(filter, added)
if added > 0 then
  keep(receipt, number, reply)
end
return answer(reply)
