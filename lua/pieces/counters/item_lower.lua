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
