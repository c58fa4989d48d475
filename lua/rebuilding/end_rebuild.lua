-- End a rebuild: put the successor in the filter's place.  It gets the filter's time to live.
--
-- KEYS[1]  the filter
-- KEYS[2]  the successor
-- ARGV[1]  the identity of the filter (56 bytes)
-- ARGV[2]  the identity of the successor (56 bytes)
--
-- Reply: 1; the same again if the call is sent again

-- include: header
-- include: rebuilding

local key, successor_key, identity, expected = KEYS[1], KEYS[2], ARGV[1], ARGV[2]

local header = read_header(key)
if header and header:sub(1, IDENTITY_BYTES) == expected then
  return 1  -- the call was sent again, and has been executed
end
local filter, refusal = open_filter(key, identity)
if not filter then
  return refusal
elseif not open_filter(successor_key, expected) then
  return redis.error_reply('BLOOMDAMAGED ' .. successor_key)
end
local left = redis.call('PTTL', key)
redis.call('SETRANGE', key, 0, '')  -- for the server that refuses writes, as the rest before RENAME
if left < 0 then
  redis.call('PERSIST', successor_key)
else
  redis.call('PEXPIRE', successor_key, math.max(1, left))
end
redis.call('RENAME', successor_key, key)
return 1
