-- Set the time to live of a filter.
--
-- KEYS[1]  the filter; of several layers the newest (the other keys come last: FORMAT.md)
-- ARGV[1]  the identity of the filter that the caller knows (56 bytes)
-- ARGV[2]  time to live in milliseconds from now
--
-- Reply: 1

-- include: numbers
-- include: all_keys

local identity, ttl = ARGV[1], read_number(ARGV[2], 1)

local all, refusal = keys_of(KEYS, identity)
if not all then
  return refusal
end
if not ttl then
  return redis.error_reply('BLOOMARGUMENT the time to live must be a number of milliseconds above 0')
end
for _, key in ipairs(all) do
  redis.call('PEXPIRE', key, ttl)
end
return 1
