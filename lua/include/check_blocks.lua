-- Sets `malformed` if packed items of `stride` bytes, whose blocks begin at byte `offset`, are malformed, too many or
-- outside the filter of `num_blocks`.  Needs words, block_size, and the locals packed, offset, stride, num_blocks and
-- blocks_an_item.
local malformed = #packed < stride or #packed % stride ~= 0 or #packed / stride * blocks_an_item > MAX_BLOCKS
if not malformed then
  for item = offset, #packed, stride do
    for at = item, item + (blocks_an_item - 1) * entry_bytes, entry_bytes do
      malformed = malformed or read_words(NUMBER, packed, at) >= num_blocks
    end
  end
end
