-- Set the bits of every item of a batch, and say which items were new.
--
-- KEYS[1]  the filter
-- ARGV[1]  the identity of the filter that the caller knows (56 bytes)
-- ARGV[2]  bit offsets as little-endian u32, num_hashes an item, item after item
--
-- Reply: a string with one character an item: '1' new, '0' already there

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

local answers, added = {}, 0
for first = 1, total, num_hashes do
  local new = '0'
  for i = first, first + num_hashes - 1 do
    if redis.call('SETBIT', key, offsets[i], 1) == 0 then
      new = '1'
    end
  end
  answers[#answers + 1] = new
  if new == '1' then
    added = added + 1
  end
end
if added > 0 then
  redis.call('SETRANGE', key, IDENTITY_BYTES, write_u64(read_u64(header, IDENTITY_BYTES + 1) + added))
end
return table.concat(answers)
