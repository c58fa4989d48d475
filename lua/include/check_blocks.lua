-- Whether packed items of `stride` bytes, whose blocks begin with the byte `offset`, are `malformed`, too many or
-- outside the filter of `num_blocks`.  Needs words, and the locals packed, offset, stride, blocks_an_item, num_blocks.
local malformed = #packed < stride or #packed % stride ~= 0 or #packed / stride * blocks_an_item > MAX_BLOCKS
if not malformed then
  for item = offset, #packed, stride do
    for at = item, item + (blocks_an_item - 1) * PACKED_BYTES, PACKED_BYTES do
      malformed = malformed or read_words(NUMBER, packed, at) >= num_blocks
    end
  end
end
