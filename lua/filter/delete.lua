-- Delete a filter.
--
-- KEYS[1]  the filter; of several layers the newest (the other keys come last: FORMAT.md)
-- KEYS[2]  the receipt of this call's lane; absent if the call need not be safe to send again
-- ARGV[1]  the identity of the filter that the caller knows (56 bytes)
-- ARGV[2]  with KEYS[2]: the number of this call in its lane, a dot and a check (FORMAT.md)
--
-- Reply: 1; or 0 if there was nothing

-- include: all_keys
-- include: receipts

local identity, number = ARGV[1], ARGV[2]
local receipt = #KEYS - extra_keys(identity) >= 2 and KEYS[2]

local replayed = replay(receipt, number)
if replayed then
  return replayed
end
local all, refusal = keys_of(KEYS, identity)
if not all then
  return refusal
end
local existed = math.min(1, redis.call('EXISTS', unpack(all)))
keep(receipt, number, existed)
redis.call('UNLINK', unpack(all))
return existed
