-- Create the record of a sharded filter if the key is free or holds the record to replace; reply the stored record.
--
-- KEYS[1]  the shard record
-- ARGV[1]  the shard record to store (header, extension and table; the script sets the creation time), or an
--          empty string to change nothing
-- ARGV[2]  time to live in milliseconds from creation, 0 for none; a replacement keeps the replaced record's own
-- ARGV[3]  the identity of the shard record to replace (56 bytes); absent to replace none
--
-- Reply: { the shard record in hex, or the header of a filter of another kind, time to live in ms or -1 }
--
-- Commands: GETRANGE 1, PTTL 1, GETRANGE 1

-- include: decimals
-- include: numbers
-- include: format
-- include: header
-- include: shard_record

local key, record, ttl, replaced = KEYS[1], ARGV[1], read_number(ARGV[2], 0), ARGV[3]

if not ttl then
  return redis.error_reply('BLOOMARGUMENT the time to live must be a number of milliseconds')
elseif record ~= ''
  and (#record < SHARD_RECORD_BYTES or record:sub(1, 7) ~= 'bloomr\1' or record:byte(11) ~= SHARDED) then
  return redis.error_reply('BLOOMARGUMENT the shard record is malformed')
end

local there, refusal = read_header(key)
local left = redis.call('PTTL', key)
local replaces = there and there:sub(1, IDENTITY_BYTES) == replaced
if record ~= '' and (replaces or left == -2) then
  local now = redis.call('TIME')
  if replaces then
    ttl = left < 0 and 0 or math.max(1, left)
  end
  record = record:sub(1, 48) .. pack_numbers('>I8', now[1] * 1000000 + now[2]) .. record:sub(IDENTITY_BYTES + 1)
  redis.call('SET', key, record, unpack(ttl > 0 and { 'PX', ttl } or {}))
  return { hex(record), redis.call('PTTL', key) }
elseif not there then
  return refusal
end
return { hex(there:byte(11) == SHARDED and redis.call('GETRANGE', key, 0, -1) or there), left }
