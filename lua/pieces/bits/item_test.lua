there = true
for n = (item + 3) / 4, (item + item_bytes - 1) / 4 do
  local offset = numbers[n] + first_bit
  if call('GETBIT', key, FORMATS and string.format('%d', offset) or offset) == 0 then
    there = false
    break
  end
end
