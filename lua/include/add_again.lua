-- Items whose receipt has just answered.
-- include: items
-- include: layers or one_layer or module_filter

-- Set the bits of items that an earlier call has added, unless the filter counts: they are there, but for a rebuild
-- that has begun or ended since.
local function add_again(filter, packed)
  local items = filter.cell_bits == 1 and read_layers(filter, packed)
  if items then
    local _, added = set_items(items, function() redis.call('SETRANGE', filter.key, 0, '') end)
    note_written(filter, added)
  end
end
