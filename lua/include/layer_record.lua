-- The layer record (FORMAT.md): a key that names the layers of a scaling or rotating filter.
-- include: numbers
-- include: header
-- include: clock

local LAYERS_BYTES = 16      -- the part of the identity before the layer record or the descriptions of bitmaps
local PARAMETERS_BYTES = 48  -- the part of a layer's header that does not depend on the time at which it began
local RECORD_BYTES = 88      -- the layer record without the times at which the layers began
local ROTATING = 2           -- the kind of a filter whose layers belong to time slices
local MAX_LAYERS = 255
local MAX_RECORD_BYTES = RECORD_BYTES + 8 * (MAX_LAYERS + 1)

local function is_layered(identity)
  return identity and #identity > LAYERS_BYTES and identity:sub(1, 6) == 'layers'
end

local function has_record(identity)
  return is_layered(identity) and identity:byte(7) == 2
end

-- The cursor that the caller of a chain expects; nil for a filter without a cursor.
local function known_cursor(identity)
  local number = is_layered(identity) and not has_record(identity) and unpack_numbers('>I8', identity, 9) or 0
  return number > 0 and number - 1 or nil
end

-- The number of keys after the keys that a script documents: the layer record, or the cursor and the bitmap to begin
-- next; and the other layers.
local function extra_keys(identity)
  local cursor = known_cursor(identity)
  if cursor then
    return cursor + 2
  end
  return is_layered(identity) and identity:byte(8) + (has_record(identity) and 1 or 0) or 0
end

-- The layer record under a key, '' if the key is missing; or nil and an error reply.
local function read_record(key)
  local record = redis.pcall('GETRANGE', key, 0, MAX_RECORD_BYTES)
  if type(record) == 'table' then
    return nil, record
  elseif record ~= '' and record:sub(1, 6) ~= 'bloomr' then
    return nil, redis.error_reply('BLOOMFOREIGN the key holds a string that is no filter')
  end
  return record
end

-- The length of a time slice in microseconds, and the number of slices in a window; nil for a scaling filter.
local function slices_of(record)
  if record:byte(11) == ROTATING then
    return unpack_numbers('>I8', record, 65), (unpack_numbers('>I8', record, 73))
  end
end

-- The time at which a layer began; the newest is layer 0.
local function begun(record, layer)
  local at = #record - 8 * layer - 7
  return (unpack_numbers('>I8', record, at))
end

-- The slice of a time, and the last slice whose items have all expired by that time.
local function slice_at(time, width, slices)
  local slice = math.floor(time / width)
  return slice, slice - slices - 1
end

-- The error reply for a missing layer record, and whether all of its layers had ended (BLOOMENDED).
local function missing(record)
  local width, slices = slices_of(record)
  if width then
    local _, past = slice_at(clock(), width, slices)
    if slice_at(begun(record, 0), width, slices) <= past then
      return redis.error_reply('BLOOMENDED all layers have come to their end'), true
    end
  end
  return redis.error_reply('BLOOMMISSING there is no such key'), false
end

-- The layer record that the caller knows if it is stored; else nil and an error reply.  For a caller who only `reads`,
-- a filter whose layers have all ended is an empty filter.
local function check_record(keys, identity, reads)
  local others, length = identity:byte(8), unpack_numbers('>I8', identity, 9)
  local described = #identity - LAYERS_BYTES - length
  if length ~= RECORD_BYTES + 8 * (others + 1) or #keys < others + 2
    or described ~= PARAMETERS_BYTES and described ~= PARAMETERS_BYTES * (others + 1) then
    return nil, redis.error_reply('BLOOMARGUMENT the layers and the keys do not match')
  end
  local expected = identity:sub(LAYERS_BYTES + 1, LAYERS_BYTES + length)
  local record, refusal = read_record(keys[#keys - others])
  if record == expected then
    return expected
  elseif record == '' then
    local why, ended = missing(expected)
    if ended and reads then
      return expected
    end
    return nil, why
  elseif record then
    return nil, redis.error_reply('BLOOMCHANGED ' .. hex(record))
  end
  return nil, refusal
end
