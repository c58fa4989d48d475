-- Create a filter unless the key exists; describe the stored filter.
--
-- KEYS[1]  the filter
-- ARGV[1]  the header to store if the key is free (64 bytes; the script sets the creation time, the count and half of
--          the generation)
-- ARGV[2]  time to live in milliseconds from creation, 0 for none
--
-- Reply: { header in hex, length of the string, time to live in ms or -1 }; and, if the script has created a large
--        filter that the server may evict, its policy
--
-- Commands: GETRANGE 1, STRLEN 1, PTTL 1

-- include: decimals
-- include: header
-- include: create

local key, template, ttl = KEYS[1], ARGV[1], read_number(ARGV[2], 0)

local malformed = check_template(template)
if malformed then
  return malformed
elseif not ttl then
  return redis.error_reply('BLOOMARGUMENT the time to live must be a number of milliseconds')
end

local there, refusal = read_header(key)
if there or redis.call('EXISTS', key) == 1 then
  return there and describe(key, there) or refusal
end
describe(key, '')  -- if a right is missing, the server must refuse the call before the first write
local policy = check_memory(new_bytes(template), ttl)
-- The generation contains the time, so that a delayed copy of this call does not create a lost generation again.
local time = clock()
template = template:sub(1, 44) .. pack_numbers('>I8', time):sub(5) .. template:sub(49)
local reply = describe(key, create(key, template, ttl, time))
reply[4] = policy
return reply
