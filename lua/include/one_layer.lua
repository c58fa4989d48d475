-- A filter of one layer: the functions of layers.lua, without the code for several.
-- include: header
-- include: items

local function extra_keys()
  return 0
end

local function open_layers(keys, identity)
  return open_filter(keys[1], identity)
end

local read_layers = read_items
