-- Write into a shard record when each part was created, and set the record in use (FORMAT.md).
--
-- KEYS[1]  the shard record
-- ARGV[1]  the identity of the shard record that the caller knows (56 bytes)
-- ARGV[2]  the table of the times at which the parts were created (8 bytes each)
--
-- Reply: { the shard record in hex, time to live in ms or -1 }; a record in use or being deleted is not changed
--
-- Commands: GETRANGE 1, 2 STRLEN 1, PTTL 1, GETRANGE 1, 2 SETRANGE 1, GETRANGE 1

-- include: numbers
-- include: format
-- include: header
-- include: shard_record

local key, identity, made = KEYS[1], ARGV[1], ARGV[2]

local record, refusal = open_filter(key, identity)
if not record then
  return refusal
elseif record.header:byte(11) ~= SHARDED or SHARD_RECORD_BYTES + #made ~= redis.call('STRLEN', key) then
  return redis.error_reply('BLOOMARGUMENT the key holds no shard record, or none with so many parts')
end
local left = redis.call('PTTL', key)
local state = redis.call('GETRANGE', key, SHARD_RECORD_STATE, SHARD_RECORD_STATE + 1)
if state ~= SHARD_RECORD_IN_USE and state ~= SHARD_RECORD_DELETED then
  redis.call('SETRANGE', key, SHARD_RECORD_BYTES, made)
  redis.call('SETRANGE', key, SHARD_RECORD_STATE, SHARD_RECORD_IN_USE)
end
return { hex(redis.call('GETRANGE', key, 0, -1)), left }
