-- A filter of one layer: the functions of layers.lua, without the code for several.
-- include: header
-- include: items

-- The number of keys behind those that a script documents: the hash of parameters, if the description has some.
local function extra_keys(identity)
  return #identity > IDENTITY_BYTES and 1 or 0
end

local function open_layers(keys, identity)
  return open_filter(keys[1], identity, keys)
end

local read_layers = read_items
local note_written = note_added
