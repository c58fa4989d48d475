-- Set or remove the time to live of a filter.
--
-- KEYS[1]  the filter, or the newest of its layers (further keys come last: FORMAT.md)
-- ARGV[1]  the identity of the filter that the caller knows (56 bytes)
-- ARGV[2]  time to live in milliseconds from now, 0 for none
--
-- Reply: 1
--
-- Commands: GETRANGE 1, STRLEN 1, PEXPIRE 1

-- include: decimals
-- include: all_keys

local identity, ttl = ARGV[1], read_number(ARGV[2], 0)

local all, refusal = keys_of(KEYS, identity)
if not all then
  return refusal
end
if not ttl then
  return redis.error_reply('BLOOMARGUMENT the time to live must be a number of milliseconds')
end
for _, key in ipairs(all) do
  if ttl > 0 then
    redis.call('PEXPIRE', key, ttl)
  else
    redis.call('PERSIST', key)
  end
end
return 1
