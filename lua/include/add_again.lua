-- Items whose receipt has just answered.
-- include: items
-- include: layers or one_layer or module_filter

-- Set the bits of items that an earlier call has added, or of `only` one of them, unless the filter counts: they are
-- there, but for a rebuild that has begun or ended since.  Returns by how much the item count grows, nil if it does not.
local function add_again(filter, packed, only)
  filter.again = filter.again or filter.cell_bits == 1 and read_layers(filter, packed)  -- once a script
  if filter.again then
    local _, added = set_items(filter.again, function() redis.call('SETRANGE', filter.key, 0, '') end, only)
    return added
  end
end
