-- Empty a filter: a new generation with the same parameters and the same expiry time.
--
-- KEYS[1]  the filter
-- ARGV[1]  the identity of the filter that the caller knows (56 bytes)
-- ARGV[2]  the header to store instead (64 bytes; the script sets creation time and count)
--
-- Reply: { header in hex, length of the string, time to live in ms or -1 }

-- include: header
-- include: create

local key, identity, template = KEYS[1], ARGV[1], ARGV[2]

local malformed = check_template(template)
if malformed then
  return malformed
end
local there = read_header(key)
if there and there:sub(41, 48) == template:sub(41, 48) then
  return describe(key, there)  -- the call was sent again, and has been executed
end
local filter, refusal = open_filter(key, identity)
if not filter then
  return refusal
end
local left = redis.call('PTTL', key)
local ttl = left < 0 and 0 or math.max(1, left)
-- Refused where the server takes no string of this length any more, and then nothing is lost.
local last = redis.call('STRLEN', key) - 1
redis.call('TIME')  -- for the rights, as the rest before UNLINK
redis.call('SETRANGE', key, last, redis.call('GETRANGE', key, last, last))
if ttl > 0 then
  redis.call('PEXPIRE', key, ttl)
end
redis.call('UNLINK', key)
return describe(key, create(key, template, ttl))
