-- Note that nothing is left to do for a shard record (FORMAT.md: its state).
--
-- KEYS[1]  the shard record
-- ARGV[1]  the identity of the shard record that the caller knows (56 bytes)
--
-- Reply: 1

-- include: numbers
-- include: format
-- include: header
-- include: shard_record

local key, identity = KEYS[1], ARGV[1]

local record, refusal = open_filter(key, identity)
if not record then
  return refusal
elseif record.header:byte(11) ~= SHARDED then
  return redis.error_reply('BLOOMARGUMENT the key holds no shard record')
end
redis.call('SETRANGE', key, SHARD_RECORD_STATE, '\0\0')
if read_u64(record.header, IDENTITY_BYTES + 1) > 0 then
  redis.call('SETRANGE', key, IDENTITY_BYTES, write_u64(0))
end
return 1
