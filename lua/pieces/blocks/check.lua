-- Check the packed blocks for a filter of one string.
local code, first_byte = identity:byte(8), HEADER_BYTES
-- paste: block_size
if fit then
  -- paste: num_bits
  local num_blocks = num_bits / block_bytes / 8
  stride = identity:byte(10) * entry_bytes
  item_bytes = stride
  fit = (is_large or code == SMALL_BLOCKS)
    and #packed >= stride and #packed % stride == 0 and #packed / entry_bytes <= MAX_BLOCKS
  for at = 1, fit and #packed or 0, entry_bytes do
    fit = fit and unpack_numbers(NUMBER, packed, at) < num_blocks
  end
  if CHECKS_LENGTH or identity:byte(FLAGS) >= DEFERRED then
    -- paste: check_length
  end
end
