-- paste: num_bits
call('GETBIT', key, first_bit + num_bits * CELL_BITS - 1)
-- paste: renew
if receipt then
  -- paste: write_receipt
else
  call('SETRANGE', key, 0, '')
end
