-- The layout whose cell is a bit.

-- piece: names
-- include: offsets
local IN_BLOCKS, COUNTS, CELL_BITS, BAD_ITEMS = false, false, 1, BAD_OFFSETS
local EARLY = false  -- the server may refuse SETBIT

-- piece: check
fit = fit and identity:byte(8) < BLOCKED and identity:byte(11) ~= COUNTING
if fit then
  stride = identity:byte(9) * 4
  item_bytes = stride
  -- paste: check_length
end
-- paste: check_offsets

-- piece: check_bitmap
-- paste: check_offsets

-- piece: check_layers
-- Check the packed offsets for each layer.
local numbers
fit = fit and #packed >= stride and #packed % stride == 0 and #packed / 4 <= MAX_OFFSETS * (older + 1)
if fit then
  numbers = unpack_u32(packed)
end
for j = ended and 1 or 0, fit and older or -1 do
  local header, first, size = header, 0, item_bytes
  if j > 0 then
    header, first, size = older_headers[j], older_firsts[j], older_sizes[j]
  end
  -- paste: num_bits
  fit = fit and #packed / stride * size / 4 <= MAX_OFFSETS
  for item = first / 4, fit and #packed / 4 - 1 or -1, stride / 4 do
    for n = item + 1, item + size / 4 do
      fit = fit and numbers[n] < num_bits
    end
  end
end

-- piece: item_test
there = true
for n = (item + 3) / 4, (item + item_bytes - 1) / 4 do
  local offset = numbers[n] + first_bit
  if call('GETBIT', key, FORMATS and string.format('%d', offset) or offset) == 0 then
    there = false
    break
  end
end

-- piece: item_set
new = false
for at = (item + 3) / 4, (item + item_bytes - 1) / 4 do
  local offset = numbers[at] + first_bit
  if call('GETBIT', key, FORMATS and string.format('%d', offset) or offset) == 0 then
    -- paste: older
    new = true
    -- paste: before
    for n = (item + 3) / 4, (item + item_bytes - 1) / 4 do
      offset = numbers[n] + first_bit
      call('SETBIT', key, FORMATS and string.format('%d', offset) or offset, '1')
    end
    break
  end
end

-- piece: probe
call('SETBIT', claim, 0, call('GETBIT', claim, 0))
