-- Reply which items of a batch the filter contains; change nothing.
--
-- KEYS[1]  the filter, or the newest of its layers (further keys come last: FORMAT.md)
-- ARGV[1]  the identity of the filter that the caller knows (56 bytes)
-- ARGV[2]  the packed items, one after another: bit offsets or blocks (FORMAT.md)
--
-- Reply: for one item 1 (present) or 0 (absent); for more items a string with one such character each
--
-- Commands of one,blocks: 2 GETRANGE 1

-- include: numbers
-- include: format
-- paste: names

local READS, CHECKS_LENGTH = true, false
local call, key, identity, packed = redis.call, KEYS[1], ARGV[1], ARGV[2]
-- paste: open
if not fit then
  -- rare: refuse
  return refusal
end
local answers, count, there = {}, 0, false
for item = 1, #packed, stride do
  -- paste: test
  count = count + 1
  answers[count] = there and '1' or '0'
end
return count == 1 and tonumber(answers[1]) or table.concat(answers)
