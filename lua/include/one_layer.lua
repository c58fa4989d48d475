-- The functions of layers.lua for a filter of one layer.
-- include: header
-- include: items

-- The number of keys after the keys that a script documents: the hash of parameters, if the description has parameters.
local function extra_keys(identity)
  return #identity > IDENTITY_BYTES and 1 or 0
end

-- `open_filter`, which also creates missing bits, or sets `unwritten` for them if the script only `reads`.
local function open_layers(keys, identity, reads)
  local filter, refusal = open_filter(keys[1], identity, keys)
  if filter and reads then
    filter.unwritten = filter.first_bit > 0 and is_unwritten(filter.key, filter.header)
  elseif filter then
    make_bits(filter)
  end
  return filter, refusal
end

local read_layers = read_items
local note_written = note_added
