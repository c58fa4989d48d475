-- Read the blocks of a batch of items, which the client compares with the masks of the items; change nothing.
--
-- KEYS[1]  the filter
-- ARGV[1]  the identity of the filter that the caller knows (56 bytes)
-- ARGV[2]  the numbers of the blocks, as little-endian u32
--
-- Reply: the blocks, one after another; fewer bytes if the string ends before them
--
-- Commands of one,blocks: 15 GETRANGE 1

-- include: numbers
-- include: format
-- paste: names

local call, key, identity, packed = redis.call, KEYS[1], ARGV[1], ARGV[2]
local header, code = redis.pcall('GETRANGE', key, 0, HEADER_BYTES - 1), identity:byte(8)
-- paste: block_size
if type(header) ~= 'string' or header:sub(1, IDENTITY_BYTES) ~= identity or #packed % 4 > 0
  or #packed / 4 > MAX_BLOCKS then
  -- rare: refuse
  return refusal
end
local blocks, count, first_byte = {}, 0, HEADER_BYTES
for at = 1, #packed, 4 do
  local block = unpack_numbers(NUMBER, packed, at)
  -- paste: block_range
  count = count + 1
  blocks[count] = call('GETRANGE', key, start, stop)
end
return table.concat(blocks)
