-- Add a batch of items: set all bits of each item, and reply which items were new.
--
-- KEYS[1]  the filter, or the newest of its layers (further keys come last: FORMAT.md)
-- KEYS[2]  the receipt of this call's session; absent if the call need not be safe to retry
-- KEYS[3]  for a retry about one item: the receipt of the session of the earlier call, whose reply was lost; else
--          absent
-- ARGV[1]  the identity of the filter that the caller knows (56 bytes)
-- ARGV[2]  the packed items, one after another: bit offsets or blocks (FORMAT.md)
-- ARGV[3]  with KEYS[2]: the name of this call: its number in the session, a dot and a checksum (FORMAT.md)
-- ARGV[4]  with KEYS[3]: the name of the earlier call
-- ARGV[5]  with KEYS[3]: the index of the item in the earlier call, from 0
--
-- Reply: for one item 1 (new) or 0 (present); for more items a string with one such character each, which ends
-- before the first new item that the newest layer has no room for

-- include: decimals
-- include: header
-- include: items
-- include: layers or one_layer
-- include: answer
-- include: receipts
-- include: add_again

local identity, packed, number = ARGV[1], ARGV[2], ARGV[3]
local own = #KEYS - extra_keys(identity)
local receipt, earlier_receipt = own >= 2 and KEYS[2], own >= 3 and KEYS[3]
local earlier_number, index = ARGV[4], read_number(ARGV[5], 0)

local replayed = not earlier_receipt and replay(receipt, number)
if replayed then
  return replayed
end
local filter, refusal = open_layers(KEYS, identity)
if not filter then
  return refusal
end
local earlier = earlier_receipt
  and (replay(receipt, number) or replay_item(earlier_receipt, earlier_number, index, own < #KEYS))
if earlier then
  if type(earlier) == 'number' then
    local again = add_again(filter, packed)
    if again then
      note_written(filter, again)
    end
  end
  return earlier
end
local items, malformed = read_layers(filter, packed)
if not items then
  return malformed
end

local reply, added = set_items(items, function()
  begin(filter, receipt, number, filter.lasting)
end)
if #reply == 0 then
  return redis.error_reply('BLOOMFULL the newest layer has no room for new items')
end
note_written(filter, added)
if added > 0 then
  keep(receipt, number, reply, filter.lasting)
end
return answer(reply)
