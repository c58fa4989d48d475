-- Let a filter expire.
--
-- KEYS[1]  the filter
-- ARGV[1]  the identity of the filter that the caller knows (56 bytes)
-- ARGV[2]  time to live in milliseconds from now
--
-- Reply: 1

-- include: numbers
-- include: header

local key, identity, ttl = KEYS[1], ARGV[1], ARGV[2]

local header, refusal = check_identity(key, identity)
if not header then
  return refusal
end
return redis.call('PEXPIRE', key, ttl)
