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
