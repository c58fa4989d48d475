-- The layout whose cell is a counter of four bits.

-- piece: names
-- include: offsets
local IN_BLOCKS, COUNTS, CELL_BITS, BAD_ITEMS = false, true, 4, BAD_OFFSETS
local EARLY = false  -- the server may refuse BITFIELD
local MOST = 15      -- a counter stays at this value, since the number of items beyond is unknown

-- piece: check
local first_counter = first_bit / CELL_BITS
fit = fit and identity:byte(11) == COUNTING
if fit then
  stride = identity:byte(9) * 4
  item_bytes = stride
  -- paste: check_length
end
-- paste: check_offsets

-- piece: item_test
there = true
for n = (item + 3) / 4, (item + item_bytes - 1) / 4 do
  local odd = numbers[n] % 2
  local at = HEADER_BYTES + (numbers[n] - odd) / 2
  if FORMATS then
    at = string.format('%d', at)
  end
  local pair = call('GETRANGE', key, at, at):byte()  -- the even counter is the upper half
  if odd == 0 and pair <= MOST or odd == 1 and pair % (MOST + 1) == 0 then
    there = false
    break
  end
end

-- piece: item_set
-- Raise the counters of an item, each once even if hashes repeat.
new = false
-- paste: before
do
  local raising, size, seen = { 'BITFIELD', key, 'OVERFLOW', 'SAT' }, 4, {}
  for n = (item + 3) / 4, (item + item_bytes - 1) / 4 do
    local counter = numbers[n]
    if not seen[counter] then
      seen[counter] = true
      raising[size + 1], raising[size + 2] = 'INCRBY', 'u4'
      raising[size + 3], raising[size + 4] = string.format('#%d', counter + first_counter), '1'
      size = size + 4
    end
  end
  local values = call(unpack(raising, 1, size))
  for n = 1, #values do
    new = new or values[n] == 1
  end
end

-- piece: item_lower
-- Lower the counters of an item, each once even if hashes repeat, unless one is 0.
local was_in = true
do
  local reading, size, seen = { 'BITFIELD', key }, 2, {}
  for n = (item + 3) / 4, (item + item_bytes - 1) / 4 do
    local counter = numbers[n]
    if not seen[counter] then
      seen[counter] = true
      reading[size + 1], reading[size + 2] = 'GET', 'u4'
      reading[size + 3] = string.format('#%d', counter + first_counter)
      size = size + 3
    end
  end
  local values = call(unpack(reading, 1, size))
  local lowering, filled = { 'BITFIELD', key }, 2
  for n = 1, #values do
    was_in = was_in and values[n] > 0
    if values[n] < MOST then
      lowering[filled + 1], lowering[filled + 2] = 'INCRBY', 'u4'
      lowering[filled + 3], lowering[filled + 4] = reading[2 + 3 * n], '-1'
      filled = filled + 4
    end
  end
  if was_in and filled > 2 then
    call(unpack(lowering, 1, filled))
  end
end

-- piece: probe
call('BITFIELD', key, 'GET', 'u4', '#0')
