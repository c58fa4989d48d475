-- Not a function, which would cost more than it does, but a piece of what includes it: read the block that the mask
-- at `at` in `packed` is for.  Its words are the locals a to h from here on, those of the mask p to w: in tables
-- they would take half as long again.  Needs numbers.lua and format.lua, and call, format, key and first_byte as
-- locals.
local block, p, q, r, s, t, u, v, w = read_words(PACKED, packed, at)
local start = first_byte + block * BLOCK_BYTES
local stop = start + BLOCK_BYTES - 1
if FORMATS then
  start, stop = format('%d', start), format('%d', stop)
end
local a, b, c, d, e, f, g, h = read_words(WORDS, call('GETRANGE', key, start, stop), 1)
