-- The layouts whose cell is a bit of a block.

-- piece: names
-- include: words
local IN_BLOCKS, COUNTS, CELL_BITS, BAD_ITEMS = true, false, 1, BAD_BLOCKS
local EARLY = true  -- a server that allows SETRANGE allows all writes

-- piece: check
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

-- piece: check_layers
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

-- piece: block_size
-- The size of the blocks in the layout with this `code`, and the formats of their words, alone and packed after the
-- block's number.  Needs format and the local code.
local entry_bytes = code == BLOCKED and 36 or 20
local is_large, block_bytes = code == BLOCKED, entry_bytes - 4
local words = is_large and '<i4i4i4i4i4i4i4i4' or '<i4i4i4i4'
local packed_words = is_large and '<I4i4i4i4i4i4i4i4i4' or '<I4i4i4i4i4'

-- piece: layer_size
local code = older_headers[j]:byte(8)
-- paste: block_size

-- piece: block_range
-- Compute the `start` and `stop` of a block for GETRANGE.  Needs block_size, format and the locals block, first_byte.
local start = first_byte + block * block_bytes
local stop = start + block_bytes - 1
if FORMATS then
  start, stop = string.format('%d', start), string.format('%d', stop)
end

-- piece: read_block
-- Read the packed block at `at` in `packed`, and the stored block.  The words of the stored block become the locals a
-- to h and those of the mask p to w; a small block has only a to d and p to s.  Tables would take 1.5 times as long.
-- Needs numbers, words, block_size, and the locals call, format, key and first_byte.
local block, p, q, r, s, t, u, v, w = unpack_numbers(packed_words, packed, at)
-- paste: block_range
local a, b, c, d, e, f, g, h = unpack_numbers(words, call('GETRANGE', key, start, stop), 1)

-- piece: item_test
there = not unwritten
for at = item, there and item + item_bytes - 1 or 0, entry_bytes do
  -- paste: read_block
  if p ~= 0 and bor(a, p) ~= a or q ~= 0 and bor(b, q) ~= b
    or r ~= 0 and bor(c, r) ~= c or s ~= 0 and bor(d, s) ~= d
    or is_large and (t ~= 0 and bor(e, t) ~= e or u ~= 0 and bor(f, u) ~= f
    or v ~= 0 and bor(g, v) ~= g or w ~= 0 and bor(h, w) ~= h) then
    there = false
    break
  end
end

-- piece: item_set
new = false
for at = item, item + item_bytes - 1, entry_bytes do
  -- paste: read_block
  local A, B, C, D, E, F, G, H = bor(a, p), bor(b, q), bor(c, r), bor(d, s), nil, nil, nil, nil
  local changed = A ~= a or B ~= b or C ~= c or D ~= d
  if is_large then
    E, F, G, H = bor(e, t), bor(f, u), bor(g, v), bor(h, w)
    changed = changed or E ~= e or F ~= f or G ~= g or H ~= h
  end
  if changed then
    if not new then
      -- paste: older
      new = true
      -- paste: before
    end
    call('SETRANGE', key, start, pack_numbers(words, A, B, C, D, E, F, G, H))
  end
end
