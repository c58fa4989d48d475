-- End a rebuild: replace the filter by its successor, which gets the filter's time to live.
--
-- KEYS[1]  the filter
-- KEYS[2]  the successor
-- ARGV[1]  the identity of the filter (56 bytes)
-- ARGV[2]  the identity of the successor (56 bytes)
--
-- Reply: 1, also to a retry

-- include: header
-- include: rebuilding

local key, successor_key, identity, expected = KEYS[1], KEYS[2], ARGV[1], ARGV[2]

local header = read_header(key)
if header and header:sub(1, IDENTITY_BYTES) == expected then
  return 1  -- this is a retry of a call that was executed
end
local filter, refusal = open_filter(key, identity)
if not filter then
  return refusal
elseif not open_filter(successor_key, expected) then
  return redis.error_reply('BLOOMDAMAGED ' .. successor_key)
end
local left = redis.call('PTTL', key)
redis.call('SETRANGE', key, 0, '')  -- a server that refuses writes must do so before RENAME
if left < 0 then
  redis.call('PERSIST', successor_key)
else
  redis.call('PEXPIRE', successor_key, math.max(1, left))
end
redis.call('RENAME', successor_key, key)
return 1
