local first_counter = first_bit / CELL_BITS
fit = fit and identity:byte(11) == COUNTING
if fit then
  stride = identity:byte(9) * 4
  item_bytes = stride
  -- paste: check_length
end
-- paste: check_offsets
