-- Whether a call takes the `fast` path: its filter has one layer in the blocked layout, the stored `header` is the
-- expected one, and the items, of `stride` bytes each, have all their blocks in the filter.  Any other call is left to
-- the functions that follow.  They would reply the same, but creating them takes the server longer than setting the
-- bits of one item.  Needs numbers, format, words, and the locals key, identity and packed.
local header, stride
local fast = identity and packed and #identity == IDENTITY_BYTES and identity:byte(8) == BLOCKED
if fast then
  header, stride = redis.pcall('GETRANGE', key, 0, HEADER_BYTES - 1), identity:byte(10) * PACKED_BYTES
  fast = type(header) == 'string' and #header == HEADER_BYTES and header:sub(1, IDENTITY_BYTES) == identity
    and #packed > 0 and #packed <= MAX_BLOCKS * PACKED_BYTES and #packed % stride == 0
end
if fast then
  local num_blocks = read_u64(identity, 17) / 256
  for at = 1, #packed, PACKED_BYTES do
    if read_words(NUMBER, packed, at) >= num_blocks then
      fast = false
      break
    end
  end
end
local call, format, first_byte = redis.call, string.format, HEADER_BYTES
