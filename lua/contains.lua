-- Say which items of a batch are in the filter, without changing it.
--
-- KEYS[1]  the filter; of several layers the newest (the others are the last keys: FORMAT.md)
-- ARGV[1]  the identity of the filter that the caller knows (56 bytes)
-- ARGV[2]  the items, one after another: their bit offsets or blocks (FORMAT.md)
--
-- Reply: for one item 1 (there) or 0 (not there); for more a string with such a character each

-- include: numbers
-- include: format

local key, identity, packed = KEYS[1], ARGV[1], ARGV[2]

-- include: usual
if usual then
  local answers, count = {}, 0
  for item = 1, #packed, stride do
    local there = true
    for at = item, item + stride - 1, PACKED_BYTES do
      -- include: test_block
    end
    count = count + 1
    answers[count] = there and '1' or '0'
  end
  return count == 1 and tonumber(answers[1]) or table.concat(answers)
end

-- include: header
-- include: blocks
-- include: counters
-- include: items
-- include: answer
-- include: layers

local filter, refusal = open_layers(KEYS, identity)
if not filter then
  return refusal
end
local items, malformed = read_layers(filter, packed)
if not items then
  return malformed
end

local answers = {}
for i = 1, items.count do
  answers[i] = items.test(i) and '1' or '0'
end
return answer(table.concat(answers))
