-- Extend the lease of a claim, if the caller still holds it; one that is longer already stays as it is.
--
-- KEYS[1]  the claim of the item
-- ARGV[1]  the claim's value: the filter's generation and the owner
-- ARGV[2]  the lease from now on, in milliseconds
--
-- Reply: 1; or 0 if the claim is another owner's or gone

-- include: numbers
-- include: claims

local claim, mine, lease = KEYS[1], ARGV[1], read_number(ARGV[2], 1)

local malformed = check_value(mine) or check_lease(lease)
if malformed then
  return malformed
elseif redis.call('GET', claim) ~= mine then
  return 0
elseif redis.call('PTTL', claim) >= lease then
  return 1
end
return redis.call('PEXPIRE', claim, lease)
