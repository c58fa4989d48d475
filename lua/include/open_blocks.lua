-- Whether the filter is `known`: it has one layer in the blocked layout, and its stored `header` is the one that the
-- caller knows; and whether the items, of `stride` bytes each, `fit` into it.  Needs numbers, format, words, and the
-- locals key, identity and packed.
local header, stride, fit = redis.pcall('GETRANGE', key, 0, HEADER_BYTES - 1)
local known = type(header) == 'string' and #header == HEADER_BYTES and header:sub(1, IDENTITY_BYTES) == identity
  and identity:byte(8) == BLOCKED
if known then
  local blocks_an_item, num_blocks, offset = identity:byte(10), read_u64(identity, 17) / 256, 1
  stride = blocks_an_item * PACKED_BYTES
  -- paste: check_blocks
  fit = not malformed
end
local call, format, first_byte = redis.call, string.format, HEADER_BYTES
