-- `contains` for a filter of one layer in the blocked layout.  It has a quarter of the text, since the first call in
-- each of a caller's pipelines carries the whole text.
--
-- KEYS[1]  the filter
-- ARGV[1]  the identity of the filter that the caller knows (56 bytes)
-- ARGV[2]  the packed items, one after another: blocks (FORMAT.md)
--
-- Reply: for one item 1 (present) or 0 (absent); for more items a string with one such character each

-- include: numbers
-- include: format
-- include: words

local key, identity, packed = KEYS[1], ARGV[1], ARGV[2]

-- paste: open_blocks
if fit then
  local answers, count = {}, 0
  for item = 1, #packed, stride do
    local there = not unwritten
    for at = item, there and item + stride - 1 or 0, entry_bytes do
      -- paste: test_block
    end
    count = count + 1
    answers[count] = there and '1' or '0'
  end
  return count == 1 and tonumber(answers[1]) or table.concat(answers)
end

-- include: identity

return select(2, read_known(key, identity)) or error_reply(BAD_BLOCKS)
