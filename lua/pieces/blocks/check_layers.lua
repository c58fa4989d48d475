-- Check the packed blocks for each layer.
local first_byte = HEADER_BYTES
-- paste: block_size
fit = fit and #packed >= stride and #packed % stride == 0
for j = ended and 1 or 0, fit and older or -1 do
  local header, first, size, code = header, 0, item_bytes, code
  if j > 0 then
    header, first, size = older_headers[j], older_firsts[j], older_sizes[j]
    code = header:byte(8)
  end
  -- paste: block_size
  -- paste: num_bits
  local num_blocks = num_bits / block_bytes / 8
  fit = fit and code >= BLOCKED and #packed / stride * size / entry_bytes <= MAX_BLOCKS
  for item = 1 + first, fit and #packed or 0, stride do
    for at = item, item + size - 1, entry_bytes do
      fit = fit and unpack_numbers(NUMBER, packed, at) < num_blocks
    end
  end
end
