-- Write a piece of a temporary string, and renew the string's time to live.
--
-- KEYS[1]  the string
-- ARGV[1]  the string's length in bytes; a string of another length is left alone
-- ARGV[2]  the string's time to live in milliseconds
-- ARGV[3]  the first byte of the piece
-- ARGV[4]  the piece
--
-- Reply: 1; or 0 if the string has vanished or has another length, and nothing was changed
--
-- Commands: STRLEN 1, PEXPIRE 1, SETRANGE 1

-- include: decimals

local key, length, ttl = KEYS[1], read_number(ARGV[1], 1), read_number(ARGV[2], 1)
local first, piece = read_number(ARGV[3], 0), ARGV[4]

if not length or not ttl or not first or not piece or first + #piece > length then
  return redis.error_reply('BLOOMARGUMENT the piece lies outside the string, or a number is malformed')
elseif redis.call('STRLEN', key) ~= length then
  return 0
end
redis.call('PEXPIRE', key, ttl)  -- first, so that a user without this right writes nothing
redis.call('SETRANGE', key, first, piece)
return 1
