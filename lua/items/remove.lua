-- Remove a batch of items from a counting filter: lower the counters of each item, and reply which were present.
--
-- KEYS[1]  the filter
-- KEYS[2]  the receipt of this call's session; absent if the call need not be safe to retry
-- KEYS[3]  for a retry about one item: the receipt of the session of the earlier call, whose reply was lost; else
--          absent
-- ARGV[1]  the identity of the filter that the caller knows (56 bytes)
-- ARGV[2]  the packed items, one after another: the numbers of their counters (FORMAT.md)
-- ARGV[3]  with KEYS[2]: the name of this call: its number in the session, a dot and a checksum (FORMAT.md)
-- ARGV[4]  with KEYS[3]: the name of the earlier call
-- ARGV[5]  with KEYS[3]: the index of the item in the earlier call, from 0
--
-- Reply: for one item 1 (removed) or 0 (absent); for more items a string with one such character each

-- include: decimals
-- include: header
-- include: items
-- include: answer
-- include: receipts

local key, identity, packed, number, earlier_number = KEYS[1], ARGV[1], ARGV[2], ARGV[3], ARGV[4]
local receipt, earlier_receipt, index = KEYS[2], KEYS[3], read_number(ARGV[5], 0)

local replayed = not earlier_receipt and replay(receipt, number)
if replayed then
  return replayed
end
local filter, refusal = open_filter(key, identity)
if not filter then
  return refusal
end
local earlier = earlier_receipt
  and (replay(receipt, number) or replay_item(earlier_receipt, earlier_number, index))
if earlier then
  return earlier
elseif filter.cell_bits == 1 then
  return redis.error_reply('BLOOMARGUMENT the filter does not count, so nothing can be removed')
end
local items, malformed = read_items(filter, packed)
if not items then
  return malformed
end

begin(filter, receipt, number)
local answers, removed = {}, 0
for i = 1, items.count do
  local was_in = items.lower(i)
  answers[i] = was_in and '1' or '0'
  removed = removed + (was_in and 1 or 0)
end
note_added(filter, -removed)
local reply = table.concat(answers)
keep(receipt, number, reply)  -- even if nothing was removed: a second execution might remove something
return answer(reply)
