-- Release a claim if the caller still holds it.
--
-- KEYS[1]  the claim of the item
-- ARGV[1]  the claim's value: the filter's generation and the owner
--
-- Reply: 1; or 0 if another owner or nobody holds the claim

-- include: format
-- include: claims

local claim, mine = KEYS[1], ARGV[1]

local malformed = check_value(mine)
if malformed then
  return malformed
elseif redis.call('GET', claim) ~= mine then
  return 0
end
-- This value stops a delayed copy of the claim.
redis.call('SET', claim, mine .. RELEASED, 'PX', RECEIPT_MS)
return 1
