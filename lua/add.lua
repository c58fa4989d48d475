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
-- include: offsets
-- include: receipts

local key, receipt, earlier_receipt = KEYS[1], KEYS[2], KEYS[3]
local identity, packed, number, earlier_number = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
local place = read_number(ARGV[5], 0)

if receipt and not number or earlier_receipt and not (earlier_number and place) then
  return redis.error_reply('BLOOMARGUMENT a call with a receipt needs its number, one with an earlier call its place')
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
local header, refusal = check_identity(key, identity)
if not header then
  return refusal
end
local offsets, total, num_hashes = read_offsets(packed, header)
if not offsets then
  return total
end

local answers, added = {}, 0
for first = 1, total, num_hashes do
  local new = '0'
  for i = first, first + num_hashes - 1 do
    if redis.call('SETBIT', key, offsets[i], '1') == 0 then
      new = '1'
    end
  end
  answers[#answers + 1] = new
  if new == '1' then
    added = added + 1
  end
end
local reply = table.concat(answers)
if added > 0 then
  redis.call('SETRANGE', key, IDENTITY_BYTES, write_u64(read_u64(header, IDENTITY_BYTES + 1) + added))
  keep(receipt, number, reply)
end
return answer(reply)
