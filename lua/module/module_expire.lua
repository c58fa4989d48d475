-- Set or remove the time to live of a filter in a key of the server's module.
--
-- KEYS[1]  the filter
-- ARGV[1]  the markers of the filter that the caller knows, as MessagePack strings
-- ARGV[2]  time to live in milliseconds from now, 0 for none
--
-- Reply: 1
--
-- Commands: BF.MEXISTS 1, PEXPIRE 1

-- include: decimals
-- include: module_markers

local key, markers, ttl = KEYS[1], ARGV[1], read_number(ARGV[2], 0)

local refusal = check_markers(key, markers)
if refusal then
  return refusal
elseif not ttl then
  return redis.error_reply('BLOOMARGUMENT the time to live must be a number of milliseconds')
elseif ttl > 0 then
  redis.call('PEXPIRE', key, ttl)
else
  redis.call('PERSIST', key)
end
return 1
