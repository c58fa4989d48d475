-- Read the packed block at `at` in `packed`, and the stored block.  The words of the stored block become the locals a
-- to h and those of the mask p to w; a small block has only a to d and p to s.  Tables would take 1.5 times as long.
-- Needs numbers, words, block_size, and the locals call, format, key and first_byte.
local block, p, q, r, s, t, u, v, w = unpack_numbers(packed_words, packed, at)
-- paste: block_range
local a, b, c, d, e, f, g, h = unpack_numbers(words, call('GETRANGE', key, start, stop), 1)
