-- Let a filter expire.
--
-- KEYS[1]  the filter; of a stack the newest layer (the root and the others are the last keys: FORMAT.md)
-- ARGV[1]  the identity of the filter that the caller knows (56 bytes)
-- ARGV[2]  time to live in milliseconds from now
--
-- Reply: 1

-- include: numbers
-- include: format
-- include: header
-- include: stack

local identity, ttl = ARGV[1], read_number(ARGV[2], 1)

local all, refusal = keys_of(KEYS, identity)
if not all then
  return refusal
end
if not ttl then
  return redis.error_reply('BLOOMARGUMENT the time to live is no number of milliseconds above 0')
end
for _, key in ipairs(all) do
  redis.call('PEXPIRE', key, ttl)
end
return 1
