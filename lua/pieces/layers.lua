-- A layer record and the layers of a scaling or rotating filter.

-- piece: open
-- Open a filter of layers: compare the layer record, and the header of each layer.  `header`, `item_bytes` and `code`
-- are those of the newest layer.  The layers before it that have not ended are `older`, with the key, header, first
-- byte in a packed item and number of bytes of each.  The newest layer has `room` for so many items, none if its slice
-- `is_over`; it has `ended` if its items have expired, and `has_ended` says the same of any layer.  `lasting` is the
-- time in ms that an item stays at most, if a receipt would stay longer.  `record` expires with its layers.
local LAYERS_BYTES = 16      -- the part of the identity before the layer record
local PARAMETERS_BYTES = 48  -- the part of a layer's header that does not depend on the time at which it began
local RECORD_BYTES = 88      -- the layer record without the times at which the layers began
local ROTATING = 2           -- the kind of a filter whose layers belong to time slices
local first_bit, unwritten, has_ended, is_over = HEADER_BYTES * 8, false, false, false
local older, older_keys, older_headers, older_firsts, older_sizes = 0, nil, nil, nil, nil
local header, own, lasting, stride, record, code, item_bytes, described, damaged
local room, ended = 0, true
local fit = #identity > LAYERS_BYTES and identity:sub(1, 7) == 'layers\2'
if fit then
  local others, length = identity:byte(8), unpack_numbers('>I8', identity, 9)
  described, own = LAYERS_BYTES + length + 1, #KEYS - others - 1
  local given = #identity - described + 1
  local shared = given == PARAMETERS_BYTES
  fit = length == RECORD_BYTES + 8 * (others + 1) and own >= 1
    and (shared or given == PARAMETERS_BYTES * (others + 1))
  local expected = identity:sub(LAYERS_BYTES + 1, described - 1)
  local found = fit and redis.pcall('GETRANGE', KEYS[own + 1], 0, length)
  if found == expected or READS and found == '' then
    local width, current, past = expected:byte(11) == ROTATING and unpack_numbers('>I8', expected, 65), nil, nil
    if width then
      local slices, time = unpack_numbers('>I8', expected, 73), call('TIME')
      current = math.floor((time[1] * 1000000 + time[2]) / width)
      past, record = current - slices - 1, KEYS[own + 1]
      local most = (slices + 1) * width
      lasting = most < RECEIPT_MS * 1000 and math.ceil(most / 1000)
    end
    stride = 0
    for i = 0, others do
      local first = described + (shared and 0 or i * PARAMETERS_BYTES)
      local parameters, began = identity:sub(first, first + PARAMETERS_BYTES - 1), expected:sub(-8 * i - 8, -8 * i - 1)
      local layer_code, size = parameters:byte(8), parameters:byte(9) * 4
      if layer_code >= BLOCKED then
        size = parameters:byte(10) * (layer_code == BLOCKED and 36 or 20)
      end
      if i == 0 then
        header, code, item_bytes = parameters, layer_code, size
      end
      local slice = width and math.floor(unpack_numbers('>I8', began, 1) / width)
      if width and slice <= past then
        has_ended = true
      else
        local layer_key = KEYS[i == 0 and 1 or own + 1 + i]
        local stored = redis.pcall('GETRANGE', layer_key, 0, HEADER_BYTES - 1)
        if type(stored) ~= 'string' or stored:sub(1, PARAMETERS_BYTES) ~= parameters
          or stored:sub(PARAMETERS_BYTES + 1, IDENTITY_BYTES) ~= began then
          damaged = layer_key
          break
        elseif i == 0 then
          header, ended, is_over = stored, false, width and slice < current
          room = is_over and 0 or unpack_numbers('>I8', header, 25) - unpack_numbers('>I8', header, IDENTITY_BYTES + 1)
        else
          if older == 0 then
            older_keys, older_headers, older_firsts, older_sizes = {}, {}, {}, {}
          end
          older = older + 1
          older_keys[older], older_headers[older] = layer_key, stored
          older_firsts[older], older_sizes[older] = shared and 0 or stride, size
        end
        stride = shared and size or stride + size
      end
    end
    stride = ended and item_bytes or stride
  end
  fit = not damaged and (found == expected or stride ~= nil and ended)  -- to a reader, an ended filter is empty
end
-- paste: check_layers

-- piece: refuse
-- include: layer_record
local refusal = error_reply('BLOOMARGUMENT the layers and the keys do not match')
if described then
  refusal = select(2, check_record(KEYS, identity)) or error_reply(damaged and 'BLOOMDAMAGED ' .. damaged or BAD_ITEMS)
end

-- piece: generation
local generation = identity:sub(LAYERS_BYTES + 41, LAYERS_BYTES + 48)  -- the record's

-- piece: test
there = false
if not ended then
  -- paste: item_test
end
if not there and older > 0 then
  -- paste: test_older
end

-- piece: test_older
-- Sets `there` if a layer before the newest has the item.
for j = 1, older do
  local key, item, item_bytes = older_keys[j], item + older_firsts[j], older_sizes[j]
  -- paste: layer_size
  -- paste: item_test
  if there then
    break
  end
end

-- piece: set
if ended then
  new, full = false, true
else
  -- paste: item_set
end

-- piece: older
-- The newest layer lacks the item, and none of its bits has been set: leave the loop if a layer before it has the item,
-- or if it has no room.
local there = false
if older > 0 then
  -- paste: test_older
end
if there then
  break
end
-- paste: find_room
if room < 1 then
  full = true
  break
end
room = room - 1

-- piece: outlast
-- Let the record of a rotating filter outlive a claim, since the claim's value names the record's generation.
if record then
  local ttl = call('PTTL', record)
  if ttl >= 0 and ttl < lease then
    call('PEXPIRE', record, lease)
  end
end
