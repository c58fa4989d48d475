-- Empty a filter: create a new generation with the same parameters and expiry time.
--
-- KEYS[1]  the filter
-- ARGV[1]  the identity of the filter that the caller knows (56 bytes)
-- ARGV[2]  the header of the new generation (64 bytes; the script sets creation time and count)
--
-- Reply: { header in hex, length of the string, time to live in ms or -1 }
--
-- Commands: 2 GETRANGE 1, STRLEN 1, PTTL 1, TIME, SETRANGE 1, GETBIT 1, STRLEN 1, PEXPIRE 1, UNLINK 1, TIME,
--           SETRANGE 1, PEXPIRE 1, SETRANGE 1, PEXPIRE 1, SETRANGE 1, STRLEN 1, PTTL 1

-- include: header
-- include: create

local key, identity, template = KEYS[1], ARGV[1], ARGV[2]

local malformed = check_template(template)
if malformed then
  return malformed
end
local there = read_header(key)
if there and there:sub(41, 48) == template:sub(41, 48) then
  return describe(key, there)  -- this is a retry of a call that was executed
end
local filter, refusal = open_filter(key, identity)
if not filter then
  return refusal
end
local left = redis.call('PTTL', key)
local ttl = left < 0 and 0 or math.max(1, left)
redis.call('TIME')  -- if a right is missing, the server must refuse the call before UNLINK
probe(key, template, ttl)
if ttl > 0 then
  redis.call('PEXPIRE', key, ttl)
end
redis.call('UNLINK', key)
return describe(key, create(key, template, ttl))
