-- Extend the lease of a claim if the caller still holds it; never shorten the lease.
--
-- KEYS[1]  the claim of the item
-- KEYS[2]  the layer record; absent if the filter has none
-- ARGV[1]  the claim's value: the filter's generation and the owner
-- ARGV[2]  the lease from now on, in milliseconds
--
-- Reply: 1; or 0 if another owner or nobody holds the claim

-- include: decimals
-- include: layer_record
-- include: claims

local claim, record, mine, lease = KEYS[1], KEYS[2], ARGV[1], read_number(ARGV[2], 1)

local malformed = check_value(mine) or check_lease(lease)
if malformed then
  return malformed
elseif redis.call('GET', claim) ~= mine then
  return 0
end
local there = record and read_record(record)
if there and there:sub(41, 48) == mine:sub(1, GENERATION_BYTES) and slices_of(there) then
  outlast(record, lease)
end
if redis.call('PTTL', claim) >= lease then
  return 1
end
return redis.call('PEXPIRE', claim, lease)
