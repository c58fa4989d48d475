-- Add an item and drop its claim, if the caller still holds it.
--
-- KEYS[1]  the filter; of several layers the newest (the other keys come last: FORMAT.md)
-- KEYS[2]  the claim of the item
-- KEYS[3]  the receipt of this call's lane; absent if the call need not be safe to send again
-- ARGV[1]  the identity of the filter that the caller knows (56 bytes)
-- ARGV[2]  the packed item: bit offsets or blocks (FORMAT.md)
-- ARGV[3]  the owner of the claim (16 bytes)
-- ARGV[4]  with KEYS[3]: the number of this call in its lane, a dot and a check (FORMAT.md)
--
-- Reply: 1; or, if the claim is another owner's or gone and nothing was changed, 2 if the item is done, else 0

-- include: format
-- include: header
-- include: items
-- include: layers or one_layer or module_filter
-- include: receipts
-- include: claims
-- include: add_again

local identity, packed, owner, number = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
local own = #KEYS - extra_keys(identity)
local claim, receipt = KEYS[2], own >= 3 and KEYS[3]

local filter, refusal = open_layers(KEYS, identity)
if not filter then
  return refusal
end
local replayed = replay(receipt, number)
if replayed then
  if replayed == 1 then
    add_again(filter, packed)
  end
  return replayed
end
local items, unreadable = read_layers(filter, packed)
local malformed = unreadable or check_owners(owner, items.count)
if malformed then
  return malformed
end
if redis.call('GET', claim) ~= filter.generation .. owner then
  local denial = items.test(1) and 2 or 0
  keep(receipt, number, denial, filter.lasting)  -- late copies of the claim and of this call would commit it yet
  return denial
end
local dropped = false
local function drop()
  if not dropped then
    dropped = true
    redis.call('UNLINK', claim)
  end
end

-- All that may be refused comes before the first bit.
local reply, added = set_items(items, function()
  begin(filter, receipt, number, filter.lasting)
  if filter.first_bit > 0 and filter.cell_bits == 1 and filter.header:byte(8) < BLOCKED then
    redis.call('SETBIT', filter.key, 0, redis.call('GETBIT', filter.key, 0))
  end
  drop()
end)
if #reply == 0 then
  return redis.error_reply('BLOOMFULL the newest layer has no room for new items')
end
note_written(filter, added)
keep(receipt, number, 1, filter.lasting)
drop()
return 1
