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
