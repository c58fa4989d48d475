-- Whether a call is a `usual` one: about a filter of one layer in the blocked layout, whose `header` is as the
-- caller expects, and about items whose blocks lie in it, of `stride` bytes each.  Such a call is answered on the
-- spot; any other is left as it is to the functions that follow and find out what to say.  They would answer it the
-- same way, but making them takes the server longer than setting the bits of an item.  Needs numbers.lua and
-- format.lua, and key, identity and packed as locals.
local header, stride
local usual = identity and packed and #identity == IDENTITY_BYTES and identity:byte(8) == BLOCKED
if usual then
  header, stride = redis.pcall('GETRANGE', key, 0, HEADER_BYTES - 1), identity:byte(10) * PACKED_BYTES
  usual = type(header) == 'string' and #header == HEADER_BYTES and header:sub(1, IDENTITY_BYTES) == identity
    and #packed > 0 and #packed <= MAX_BLOCKS * PACKED_BYTES and #packed % stride == 0
end
if usual then
  local num_blocks = read_u64(identity, 17) / 256
  for at = 1, #packed, PACKED_BYTES do
    if read_words(NUMBER, packed, at) >= num_blocks then
      usual = false
      break
    end
  end
end
local call, format, first_byte = redis.call, string.format, HEADER_BYTES
