-- Create a hash of parameters unless the key exists; reply the stored values.
--
-- KEYS[1]      the hash
-- ARGV[i]      a field, for every odd i
-- ARGV[i + 1]  the field's value
--
-- Reply: the value of each field; an empty string for a missing field
--
-- Commands: EXISTS 1, 4 HGET 1

local key = KEYS[1]

if #ARGV < 2 or #ARGV % 2 == 1 then
  return redis.error_reply('BLOOMARGUMENT parameters are pairs of a field and a value')
elseif redis.call('EXISTS', key) == 0 then
  for i = 1, #ARGV, 2 do
    redis.call('HGET', key, ARGV[i])  -- if this right is missing, the server must refuse the call before HSET
    redis.call('HSET', key, ARGV[i], ARGV[i + 1])
  end
end
local values = {}
for i = 1, #ARGV, 2 do
  values[#values + 1] = redis.call('HGET', key, ARGV[i]) or ''
end
return values
