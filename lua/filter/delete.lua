-- Delete a filter.
--
-- KEYS[1]  the filter, or the newest of its layers (further keys come last: FORMAT.md)
-- KEYS[2]  the receipt of this call's session; absent if the call need not be safe to retry
-- ARGV[1]  the identity of the filter that the caller knows (56 bytes)
-- ARGV[2]  with KEYS[2]: the name of this call: its number in the session, a dot and a checksum (FORMAT.md)
--
-- Reply: 1; or 0 if no key existed
--
-- Commands: GET 2, GETRANGE 1, STRLEN 1, EXISTS 1, PTTL 2, SETRANGE 2, UNLINK 1, PTTL 2, SETRANGE 2

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
keep(receipt, number)
redis.call('UNLINK', unpack(all))
keep(receipt, number, existed)
return existed
