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
