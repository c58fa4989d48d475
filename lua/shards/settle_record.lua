-- Note that nothing is left to do for a shard record (FORMAT.md: its state).
--
-- KEYS[1]  the shard record
-- ARGV[1]  the identity of the shard record that the caller knows (56 bytes)
--
-- Reply: 1

-- include: header
-- include: shard_record

local record, refusal = open_filter(KEYS[1], ARGV[1])
if not record then
  return refusal
end
redis.call('SETRANGE', KEYS[1], SHARD_RECORD_STATE, '\0\0')
return 1
