-- Whether the items, of `stride` bytes each, `fit` into the filter: it has one layer in the blocked layout, and its
-- stored `header` is the one that the caller knows.  Needs numbers, format, words, and the
-- locals key, identity and packed.
local header, stride, fit = redis.pcall('GETRANGE', key, 0, HEADER_BYTES - 1)
local known = type(header) == 'string' and #header == HEADER_BYTES and header:sub(1, IDENTITY_BYTES) == identity
local code = known and header:byte(8)
-- paste: block_size
if is_large or code == SMALL_BLOCKS then
  local blocks_an_item, num_blocks, offset = identity:byte(10), num_bits_of(identity) / block_bytes / 8, 1
  stride = blocks_an_item * entry_bytes
  -- paste: check_blocks
  fit = not malformed
end
local call, format, first_byte = redis.call, string.format, HEADER_BYTES
