-- Adding items again after a retry was answered from its receipt.
-- include: items
-- include: layers or one_layer or module_filter

-- Set the bits of items that an earlier call has added, or of `only` one of them, unless the filter counts.  The bits
-- are set already unless the layer that had them has ended since.  Return the growth of the item count, nil for a
-- counting filter.
local function add_again(filter, packed, only)
  filter.again = filter.again or filter.cell_bits == 1 and read_layers(filter, packed)  -- read once for all items
  if filter.again then
    local _, added = set_items(filter.again, function() redis.call('SETRANGE', filter.key, 0, '') end, only)
    return added
  end
end
