-- Decode the packed items into `numbers`, and check them for a filter of one string.
local numbers
fit = fit and #packed >= stride and #packed % stride == 0 and #packed / 4 <= MAX_OFFSETS
if fit then
  numbers = unpack_u32(packed)
  local num_bits = num_bits_of(identity)
  for n = 1, #packed / 4 do
    fit = fit and numbers[n] < num_bits
  end
end
