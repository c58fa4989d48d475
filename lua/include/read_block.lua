-- Read the block that the mask at `at` in `packed` belongs to.  Its words become the locals a to h, those of the
-- mask p to w: in tables they would cost half as much again.  Needs numbers, words, and the locals call, format,
-- key and first_byte.
local block, p, q, r, s, t, u, v, w = read_words(PACKED, packed, at)
local start = first_byte + block * BLOCK_BYTES
local stop = start + BLOCK_BYTES - 1
if FORMATS then
  start, stop = format('%d', start), format('%d', stop)
end
local a, b, c, d, e, f, g, h = read_words(WORDS, call('GETRANGE', key, start, stop), 1)
