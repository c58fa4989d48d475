-- Set the bits of every item of a batch, and say which items were new.
--
-- KEYS[1]  the filter; of several layers the newest (the others are the last keys: FORMAT.md)
-- KEYS[2]  the receipt of this call's lane; absent if the call need not be safe to send again
-- KEYS[3]  the receipt of the lane of an earlier call that had this one item and whose reply never
--          arrived; absent if there is none
-- ARGV[1]  the identity of the filter that the caller knows (56 bytes)
-- ARGV[2]  the items, one after another: their bit offsets or blocks (FORMAT.md)
-- ARGV[3]  with KEYS[2]: the number of this call in its lane
-- ARGV[4]  with KEYS[3]: the number of the earlier call in its lane
-- ARGV[5]  with KEYS[3]: the index of the item in the earlier call, from 0
--
-- Reply: for one item 1 (new) or 0 (already there); for more a string with such a character each, which
-- ends before the first item that is new and for which the newest layer of several has no room

-- include: numbers
-- include: format

local key, identity, packed, number = KEYS[1], ARGV[1], ARGV[2], ARGV[3]

-- include: usual
if usual and KEYS[2] then
  local kept = call('GET', KEYS[2])
  usual = #KEYS == 2 and tonumber(number) and (not kept or (tonumber(kept:match('^%d+')) or 0) < tonumber(number))
end
if usual then
  local first_item, last_item, item_bytes = 1, #packed, stride
  -- include: set_blocks
  local reply = count == 1 and answers[1] or table.concat(answers)
  if added > 0 then
    call('SETRANGE', key, IDENTITY_BYTES, write_u64(read_u64(header, IDENTITY_BYTES + 1) + added))
    if KEYS[2] then
      call('SET', KEYS[2], number .. ':' .. reply, 'PX', RECEIPT_MS)
    end
  end
  return count == 1 and added or reply
end

-- include: header
-- include: blocks
-- include: counters
-- include: items
-- include: layers
-- include: answer
-- include: receipts

local own = #KEYS - extra_keys(identity)
local receipt, earlier_receipt = own >= 2 and KEYS[2], own >= 3 and KEYS[3]
local earlier_number, index = ARGV[4], read_number(ARGV[5], 0)

local replayed = replay(receipt, number) or replay_item(earlier_receipt, earlier_number, index, own < #KEYS)
if replayed then
  return replayed
end
local filter, refusal = open_layers(KEYS, identity)
if not filter then
  return refusal
end
local items, malformed = read_layers(filter, packed)
if not items then
  return malformed
end

local reply, added = set_items(items)
if #reply == 0 then
  return redis.error_reply('BLOOMFULL the newest layer takes no new items')
end
note_added(filter, added)
if added > 0 then
  keep(receipt, number, reply, filter.lasting)
end
return answer(reply)
