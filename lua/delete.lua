-- Delete a filter.
--
-- KEYS[1]  the filter
-- KEYS[2]  the receipt of this call's lane; absent if the call need not be safe to send again
-- ARGV[1]  the identity of the filter that the caller knows (56 bytes)
-- ARGV[2]  with KEYS[2]: the number of this call in its lane
--
-- Reply: 1, or 0 if there was nothing

-- include: numbers
-- include: header
-- include: receipts

local key, receipt, identity, number = KEYS[1], KEYS[2], ARGV[1], ARGV[2]

local misnumbered = check_number(receipt, number)
if misnumbered then
  return misnumbered
end
local kept = recall(receipt, number)
if kept then
  return tonumber(kept)
end
local filter, refusal = open_filter(key, identity)
if not filter then
  return refusal
end
local existed = redis.call('UNLINK', key)
keep(receipt, number, existed)
return existed
