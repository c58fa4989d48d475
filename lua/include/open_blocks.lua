-- Read the stored `header`.  Sets `fit` if the filter has one layer in the blocked layout and the identity that the
-- caller knows, and if the items, of `stride` bytes each, are well-formed.  Sets `unwritten` if the filter's bits have
-- not been created, and `last_bit` to the offset of the last of them.  Needs numbers, format, words, and the locals
-- key, identity and packed.
local header, stride, fit, unwritten, last_bit = redis.pcall('GETRANGE', key, 0, HEADER_BYTES - 1)
local known = type(header) == 'string' and #header == HEADER_BYTES and header:sub(1, IDENTITY_BYTES) == identity
local code = known and header:byte(8)
-- paste: block_size
if is_large or code == SMALL_BLOCKS then
  local blocks_an_item, num_blocks, offset = identity:byte(10), num_bits_of(identity) / block_bytes / 8, 1
  stride, last_bit = blocks_an_item * entry_bytes, (HEADER_BYTES + num_blocks * block_bytes) * 8 - 1
  -- paste: check_blocks
  unwritten = identity:byte(FLAGS) >= DEFERRED and redis.call('STRLEN', key) == HEADER_BYTES
  fit = not malformed and not (unwritten and read_u64(header, IDENTITY_BYTES + 1) > 0)  -- else the string was cut
end
local call, format, first_byte = redis.call, string.format, HEADER_BYTES
