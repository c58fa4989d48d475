-- Before the first write of the call: let the server refuse what it may refuse, and write the receipt, with the reply
-- if that is known.
if not is_writing then
  is_writing = true
  -- paste: num_bits
  call('GETBIT', key, first_bit + num_bits * CELL_BITS - 1)
  -- paste: renew
  if receipt then
    local reply = is_single and EARLY and '1'
    -- paste: write_receipt
  elseif not EARLY then
    call('SETRANGE', key, 0, '')
  end
end
