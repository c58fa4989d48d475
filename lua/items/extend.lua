-- Extend the lease of a claim if the caller still holds it; never shorten the lease.
--
-- KEYS[1]  the claim of the item
-- KEYS[2]  the layer record; absent if the filter has none
-- ARGV[1]  the claim's value: the filter's generation and the owner
-- ARGV[2]  the lease from now on, in milliseconds
--
-- Reply: 1; or 0 if another owner or nobody holds the claim

-- include: numbers
-- include: format

local ROTATING = 2

local call, claim, record, mine, lease = redis.call, KEYS[1], KEYS[2], ARGV[1], tonumber(ARGV[2])

if #mine ~= 16 and #mine ~= 24 or not (lease and lease >= 1 and lease < 2 ^ 53 and lease % 1 == 0) then
  -- rare: unfit
elseif call('GET', claim) ~= mine then
  return 0
end
if record then  -- a rotating filter's record must outlive the claim, whose value names the record's generation
  local header = redis.pcall('GETRANGE', record, 0, HEADER_BYTES - 1)
  if type(header) == 'string' and header:sub(1, 6) == 'bloomr' and header:byte(11) == ROTATING
    and header:sub(41, 48) == mine:sub(1, 8) then
    -- paste: outlast
  end
end
if call('PTTL', claim) >= lease then
  return 1
end
return call('PEXPIRE', claim, lease)
