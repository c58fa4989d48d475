-- Sets `unwritten` if the bits have not been created, and clears `fit` if the string was cut.
local length = call('STRLEN', key)
unwritten = length == HEADER_BYTES and identity:byte(FLAGS) >= DEFERRED
if unwritten then
  fit = fit and unpack_numbers('>I8', header, IDENTITY_BYTES + 1) == 0
else
  -- paste: num_bits
  fit = fit and length >= HEADER_BYTES + num_bits * CELL_BITS / 8
end
