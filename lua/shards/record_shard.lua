-- Record the generation of a shard; reply the generation that is recorded then.
--
-- KEYS[1]  the shard record
-- ARGV[1]  the identity of the shard record that the caller knows (56 bytes)
-- ARGV[2]  the number of the shard, from 0
-- ARGV[3]  the shard's generation (8 bytes), or an empty string to record nothing
-- ARGV[4]  the generation that it replaces: that of a lost shard, or zero bytes for none
-- ARGV[5]  1 if the shard does not expire: then nothing is recorded if the shard record does
--
-- Reply: { generation in hex, zeros for none, time to live of the shard record in ms or -1 }

-- include: decimals
-- include: header
-- include: shard_record

local key, identity, number, generation, replaced = KEYS[1], ARGV[1], read_number(ARGV[2], 0), ARGV[3], ARGV[4]
local lasts = ARGV[5] == '1'

local record, refusal = open_filter(key, identity)
if not record then
  return refusal
elseif not number or SHARD_RECORD_BYTES + number * 8 + 8 > redis.call('STRLEN', key)
  or generation ~= '' and (#generation ~= 8 or #replaced ~= 8) then
  return redis.error_reply('BLOOMARGUMENT there is no such shard, or a generation is malformed')
end

local first = SHARD_RECORD_BYTES + number * 8
local recorded = redis.call('GETRANGE', key, first, first + 7)
local ttl = redis.call('PTTL', key)
if generation ~= '' and recorded == replaced and not (lasts and ttl >= 0) then
  redis.call('SETRANGE', key, first, generation)
  recorded = generation
end
return { hex(recorded), ttl }
