-- Filters of several layers (FORMAT.md): an item is in one if it is in any layer, and only the first layer
-- is written.  Needs numbers.lua, header.lua and items.lua.

local LAYERS_BYTES = 16

local function is_layered(identity)
  return identity and #identity > LAYERS_BYTES and identity:sub(1, 7) == 'layers\1'
end

-- How many keys at the end of all belong to other layers, and to the cursor that counts them.
local function extra_keys(identity)
  return is_layered(identity) and identity:byte(8) + (read_u64(identity, 9) > 0 and 1 or 0) or 0
end

-- The number under the cursor's key, 0 if there is none.
local function read_cursor(key)
  return tonumber(redis.call('GET', key) or 0)
end

-- How many bits of a bitmap may be set until it is half full; less than 0 if it is more than that.
local function bits_left(filter)
  return read_u64(filter.header, 17) / 2 - redis.call('BITCOUNT', filter.key)
end

-- What `open_filter` returns for the first layer, with `layers` if there are more, and `grows` if there is
-- a cursor.
local function open_layers(key, keys, identity)
  if not is_layered(identity) then
    return open_filter(key, identity)
  end
  local extra = extra_keys(identity)
  local others, expected = identity:byte(8), read_u64(identity, 9) - 1
  local shared = #identity == LAYERS_BYTES + BITMAP_BYTES
  if not shared and #identity ~= LAYERS_BYTES + BITMAP_BYTES * (others + 1) or #keys <= extra then
    return nil, redis.error_reply('BLOOMARGUMENT the layers and the keys do not match')
  end
  if expected >= 0 and read_cursor(keys[#keys - extra + 1]) ~= expected then
    return nil, redis.error_reply('BLOOMSTALE ' .. read_cursor(keys[#keys - extra + 1]))
  end
  local layers = {}
  for i = 0, others do
    local first = LAYERS_BYTES + 1 + (shared and 0 or i * BITMAP_BYTES)
    local layer_key = i == 0 and key or keys[#keys - others + i]
    local layer, refusal = open_filter(layer_key, identity:sub(first, first + BITMAP_BYTES - 1))
    if not layer then
      return nil, refusal
    end
    layers[i + 1] = layer
  end
  layers[1].layers, layers[1].shared, layers[1].grows = layers, shared, expected >= 0
  return layers[1]
end

-- The packed items of each layer, out of those of an item in all layers, item after item.
local function split_layers(layers, packed)
  local sizes, total = {}, 0
  for j, layer in ipairs(layers) do
    sizes[j] = layer.header:byte(9) * 4
    total = total + sizes[j]
  end
  local pieces = {}
  for j = 1, #layers do
    pieces[j] = {}
  end
  for first = 1, #packed, total do
    for j, size in ipairs(sizes) do
      table.insert(pieces[j], packed:sub(first, first + size - 1))
      first = first + size
    end
  end
  return pieces
end

-- What `read_items` returns, of all layers; `set` returns nil where the first layer is too full for a new item.
local function read_layers(filter, packed)
  if not filter.layers then
    return read_items(filter, packed)
  end
  local pieces = filter.shared or split_layers(filter.layers, packed)
  local read = {}
  for j, layer in ipairs(filter.layers) do
    local items, refusal = read_items(layer, filter.shared and packed or table.concat(pieces[j]))
    if not items then
      return nil, refusal
    elseif j > 1 and items.count ~= read[1].count then
      return nil, redis.error_reply('BLOOMARGUMENT the layers have different numbers of items')
    end
    read[j] = items
  end
  local function test(item)
    for _, items in ipairs(read) do
      if items.test(item) then
        return true
      end
    end
    return false
  end
  local room = 0  -- new items until the bits have to be counted again
  local function set(item)
    if test(item) then
      return false
    elseif filter.grows and room < 1 then
      room = math.floor(bits_left(filter) / filter.header:byte(9)) + 1
      if room < 1 then
        return nil
      end
    end
    room = room - 1
    return read[1].set(item)
  end
  return { count = read[1].count, set = set, test = test }
end
