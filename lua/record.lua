-- Record in the root of a sharded filter which generation a shard has, and say which one is recorded now.
--
-- KEYS[1]  the root
-- ARGV[1]  the identity of the root that the caller knows (56 bytes)
-- ARGV[2]  the number of the shard, from 0
-- ARGV[3]  the shard's generation (8 bytes), or an empty string to record nothing
-- ARGV[4]  the generation that it takes the place of: of a shard that was lost, or zero bytes for none
--
-- Reply: { generation in hex, zeros for none, time to live of the root in ms or -1 }

-- include: numbers
-- include: format
-- include: header

local ROOT_BYTES = 96

local key, identity, number, generation, replaced = KEYS[1], ARGV[1], read_number(ARGV[2], 0), ARGV[3], ARGV[4]

local root, refusal = open_filter(key, identity)
if not root then
  return refusal
elseif not number or ROOT_BYTES + number * 8 + 8 > redis.call('STRLEN', key)
  or generation ~= '' and (#generation ~= 8 or #replaced ~= 8) then
  return redis.error_reply('BLOOMARGUMENT there is no such shard, or a generation is malformed')
end

local first = ROOT_BYTES + number * 8
local recorded = redis.call('GETRANGE', key, first, first + 7)
if generation ~= '' and recorded == replaced then
  redis.call('SETRANGE', key, first, generation)
  recorded = generation
end
return { hex(recorded), redis.call('PTTL', key) }
