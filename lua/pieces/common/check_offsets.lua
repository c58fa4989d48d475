-- Decode the packed items into `numbers`, and check them for a filter of one string.
local numbers
fit = fit and #packed >= stride and #packed % stride == 0 and #packed / 4 <= MAX_OFFSETS
if fit then
  numbers = unpack_u32(packed)
  -- paste: num_bits
  for n = 1, #packed / 4 do
    fit = fit and numbers[n] < num_bits
  end
end
