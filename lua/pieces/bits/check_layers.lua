-- Check the packed offsets for each layer.
local numbers
fit = fit and #packed >= stride and #packed % stride == 0 and #packed / 4 <= MAX_OFFSETS * (older + 1)
if fit then
  numbers = unpack_u32(packed)
end
for j = ended and 1 or 0, fit and older or -1 do
  local header, first, size = header, 0, item_bytes
  if j > 0 then
    header, first, size = older_headers[j], older_firsts[j], older_sizes[j]
  end
  -- paste: num_bits
  fit = fit and #packed / stride * size / 4 <= MAX_OFFSETS
  for item = first / 4, fit and #packed / 4 - 1 or -1, stride / 4 do
    for n = item + 1, item + size / 4 do
      fit = fit and numbers[n] < num_bits
    end
  end
end
