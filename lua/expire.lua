-- Let a filter expire.
--
-- KEYS[1]  the filter
-- ARGV[1]  the identity of the filter that the caller knows (56 bytes)
-- ARGV[2]  time to live in milliseconds from now
--
-- Reply: 1

-- include: numbers
-- include: header

local key, identity, ttl = KEYS[1], ARGV[1], read_number(ARGV[2], 1)

local filter, refusal = open_filter(key, identity)
if not filter then
  return refusal
end
if not ttl then
  return redis.error_reply('BLOOMARGUMENT the time to live is no number of milliseconds above 0')
end
return redis.call('PEXPIRE', key, ttl)
