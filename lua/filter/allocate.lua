-- Allocate a string of zeros that expires.
--
-- KEYS[1]  the string
-- ARGV[1]  the string's length in bytes
-- ARGV[2]  the string's time to live in milliseconds
--
-- Reply: 1; a string of this length or more is left alone
--
-- Commands: STRLEN 1, SETRANGE 1, PEXPIRE 1, SETRANGE 1, PEXPIRE 1

-- include: decimals
-- include: create

local key, length, ttl = KEYS[1], read_number(ARGV[1], 1), read_number(ARGV[2], 1)

if not length or not ttl then
  return redis.error_reply('BLOOMARGUMENT the length or the time to live is malformed')
end
if redis.call('STRLEN', key) < length then  -- else this is a delayed copy, and the string may have pieces already
  check_memory(length, ttl)
  allocate(key, length, ttl)
end
return 1
