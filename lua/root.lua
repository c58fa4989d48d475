-- Create the root of a sharded filter if the key is free, or in the place of one; say what is there now.
--
-- KEYS[1]  the root
-- ARGV[1]  what to store (header, its extension and the table; the creation time is filled in here), or an
--          empty string to change nothing
-- ARGV[2]  time to live in milliseconds from creation, 0 for none; a root that is replaced keeps its own
-- ARGV[3]  the identity of the root to replace (56 bytes), absent for none
--
-- Reply: { the root in hex, or the header if it is no root, time to live in ms or -1 }

-- include: numbers
-- include: format
-- include: header

local SHARDED = 3
local ROOT_BYTES = 96

local key, root, ttl, replaced = KEYS[1], ARGV[1], read_number(ARGV[2], 0), ARGV[3]

if not ttl then
  return redis.error_reply('BLOOMARGUMENT the time to live is no number of milliseconds')
elseif root ~= '' and (#root < ROOT_BYTES or root:sub(1, 7) ~= 'bloomr\1' or root:byte(11) ~= SHARDED) then
  return redis.error_reply('BLOOMARGUMENT the root to store is malformed')
end

local there = read_header(key)
local replaces = there and there:sub(1, IDENTITY_BYTES) == replaced
if root ~= '' and (replaces or redis.call('EXISTS', key) == 0) then
  local now = redis.call('TIME')
  if replaces then
    ttl = redis.call('PTTL', key)
  end
  redis.call('SET', key, root:sub(1, 48) .. write_u64(now[1] * 1000000 + now[2]) .. root:sub(IDENTITY_BYTES + 1))
  if ttl > 0 then
    redis.call('PEXPIRE', key, ttl)
  end
end

local header, refusal = read_header(key)
if not header then
  return refusal
end
local whole = header:byte(11) == SHARDED and redis.call('GETRANGE', key, 0, -1) or header
return { hex(whole), redis.call('PTTL', key) }
