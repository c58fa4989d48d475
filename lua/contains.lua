-- Say which items of a batch are in the filter, without changing it.
--
-- KEYS[1]  the filter
-- ARGV[1]  the identity of the filter that the caller knows (56 bytes)
-- ARGV[2]  bit offsets as little-endian u32, num_hashes an item, item after item
--
-- Reply: for one item 1 (there) or 0 (not there); for more a string with such a character each

-- include: numbers
-- include: header
-- include: offsets

local key, identity, packed = KEYS[1], ARGV[1], ARGV[2]

local header, refusal = check_identity(key, identity)
if not header then
  return refusal
end
local offsets, total, num_hashes = read_offsets(packed, header)
if not offsets then
  return total
end

local answers = {}
for first = 1, total, num_hashes do
  local there = '1'
  for i = first, first + num_hashes - 1 do
    if redis.call('GETBIT', key, offsets[i]) == 0 then
      there = '0'
      break
    end
  end
  answers[#answers + 1] = there
end
return answer(table.concat(answers))
