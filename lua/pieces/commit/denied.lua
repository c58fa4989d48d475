-- The caller does not hold the claim.
local held = redis.pcall('GET', claim)
if type(held) == 'table' then
  -- paste: other_type
end
-- paste: test
reply = there and 2 or 0
if receipt then
  -- Without this receipt, delayed copies of the claim and then of this call could still commit the item.
  -- paste: write_receipt
end
