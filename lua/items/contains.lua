-- Reply which items of a batch the filter contains; change nothing.
--
-- KEYS[1]  the filter, or the newest of its layers (further keys come last: FORMAT.md)
-- ARGV[1]  the identity of the filter that the caller knows (56 bytes)
-- ARGV[2]  the packed items, one after another: bit offsets or blocks (FORMAT.md)
--
-- Reply: for one item 1 (present) or 0 (absent); for more items a string with one such character each

-- include: layers or one_layer
-- include: answer

local identity, packed = ARGV[1], ARGV[2]

local filter, refusal = open_layers(KEYS, identity, true)
if not filter then
  return refusal
end
local items, malformed = read_layers(filter, packed)
if not items then
  return malformed
end

local answers = {}
for i = 1, items.count do
  answers[i] = not filter.unwritten and items.test(i) and '1' or '0'
end
return answer(table.concat(answers))
