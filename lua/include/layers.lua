-- Filters of one or more layers: the filter contains an item if any layer does; only the newest layer is written.
-- include: numbers
-- include: format
-- include: header
-- include: items
-- include: layer_record
-- include: chain

-- `open_filter` for several bitmaps of another system: the newest bitmap, with all `layers`, the newest first.
local function open_bitmaps(keys, identity)
  local cursor = known_cursor(identity)
  local others = cursor or identity:byte(8)
  local shared = #identity == LAYERS_BYTES + BITMAP_BYTES
  local extra = extra_keys(identity)
  if not shared and #identity ~= LAYERS_BYTES + BITMAP_BYTES * (others + 1) or #keys <= extra then
    return nil, redis.error_reply('BLOOMARGUMENT the layers and the keys do not match')
  end
  local stale = cursor and check_cursor(keys[#keys - extra + 1], cursor)
  if stale then
    return nil, stale
  end
  local newest = open_bitmap(keys[1], identity:sub(LAYERS_BYTES + 1, LAYERS_BYTES + BITMAP_BYTES))
  local layers = { newest }
  for i = 1, others do
    local first = LAYERS_BYTES + 1 + i * BITMAP_BYTES
    local header = shared and newest.header or identity:sub(first, first + BITMAP_BYTES - 1)
    layers[i + 1] = { key = keys[#keys - others + i], header = header, first_bit = 0, cell_bits = 1 }
  end
  newest.layers, newest.shared = layers, shared
  if cursor then
    newest.number, newest.cursor, newest.next = cursor, keys[#keys - extra + 1], keys[#keys - extra + 2]
    newest.renews = newest.expires and newest.header:byte(10) == 1
  end
  return newest
end

-- `open_filter` for the layers of a layer record, without layers of a rotating filter whose items have all expired.
-- `room` is the number of items that the newest layer takes, 0 if its slice `is_over`.  `lasting` is the longest time
-- in milliseconds that an item stays, if a receipt would stay longer.  `record` is the key of a layer record that
-- expires with its layers.  `has_ended` is true if one of the layers that the caller knows has ended.
local function open_recorded(keys, identity, reads)
  local record, refusal = check_record(keys, identity, reads)
  if not record then
    return nil, refusal
  end
  local others = identity:byte(8)
  local described = LAYERS_BYTES + #record + 1
  local shared = #identity == described + PARAMETERS_BYTES - 1
  local width, slices = slices_of(record)
  local current, past, is_over
  if width then
    current, past = slice_at(clock(), width, slices)
    is_over = slice_at(begun(record, 0), width, slices) < current
  end
  local newest = {
    key = keys[1],
    header = identity:sub(described),
    first_bit = HEADER_BYTES * 8,
    cell_bits = 1,
    generation = record:sub(41, 48),
    layers = {},
    shared = shared,
    room = 0,
    is_over = is_over,
    lasting = width and (slices + 1) * width < RECEIPT_MS * 1000 and math.ceil((slices + 1) * width / 1000),
    record = width and keys[#keys - others],
  }
  for i = 0, others do
    local slice = width and slice_at(begun(record, i), width, slices)
    if not width or slice > past then
      local key = i == 0 and keys[1] or keys[#keys - others + i]
      local first = described + (shared and 0 or i * PARAMETERS_BYTES)
      local header = redis.pcall('GETRANGE', key, 0, HEADER_BYTES - 1)
      local expected = identity:sub(first, first + PARAMETERS_BYTES - 1) .. record:sub(-8 * i - 8, -8 * i - 1)
      if type(header) == 'table' or header:sub(1, IDENTITY_BYTES) ~= expected then
        return nil, redis.error_reply('BLOOMDAMAGED ' .. key)
      end
      local layer = newest
      if i == 0 then
        newest.header = header
        if not is_over then
          newest.room = read_u64(header, 25) - read_u64(header, IDENTITY_BYTES + 1)
        end
      else
        layer = { key = key, header = header, first_bit = HEADER_BYTES * 8, cell_bits = 1 }
      end
      newest.layers[#newest.layers + 1] = layer
    end
  end
  newest.has_ended = #newest.layers <= others
  return newest
end

-- `open_filter` for a filter of one or more layers; see `check_record` for `reads`.
local function open_layers(keys, identity, reads)
  if not is_layered(identity) then
    return open_filter(keys[1], identity)
  elseif has_record(identity) then
    return open_recorded(keys, identity, reads)
  end
  return open_bitmaps(keys, identity)
end

-- `read_items` for all layers; `set` returns nil if the newest layer has no room for a new item.
local function read_layers(filter, packed)
  if not filter.layers then
    return read_items(filter, packed)
  end
  local sizes, stride = {}, 0
  for j, layer in ipairs(filter.layers) do
    sizes[j] = packed_bytes(layer)
    stride = filter.shared and sizes[j] or stride + sizes[j]
  end
  local read, first = {}, 1
  for j, layer in ipairs(filter.layers) do
    local items, refusal = read_items(layer, packed, first, stride, filter.shared and read[1])
    if not items then
      return nil, refusal
    end
    read[j] = items
    first = filter.shared and first or first + sizes[j]
  end
  local count = #packed / (stride > 0 and stride or packed_bytes(filter))
  if count < 1 or count % 1 ~= 0 then
    return nil, redis.error_reply('BLOOMARGUMENT ' .. #packed .. ' bytes are not the items of a filter')
  end

  local function test(item)
    for _, items in ipairs(read) do
      if items.test(item) then
        return true
      end
    end
    return false
  end

  local function set(item, before)
    if test(item) then
      return false
    elseif filter.cursor and (not filter.room or filter.room < 1) then
      filter.room = chain_room(filter, not filter.room)
    end
    if filter.room then
      if filter.room < 1 then
        return nil
      end
      filter.room = filter.room - 1
    end
    return read[1].set(item, before)
  end

  local single = #read == 1 and filter.layers[1] == filter and filter.room and filter.room >= count
  return { count = count, set = set, test = test, set_run = single and read[1].set_run }
end

-- `note_added` for a filter of one or more layers.
local function note_written(filter, added)
  if filter.cursor then
    note_put(filter)
  else
    note_added(filter, added)
  end
end
