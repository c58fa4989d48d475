-- The items that this library adds to a filter in a key of the server's module (FORMAT.md).

local MARK_PREFIX = '\0bloomr'

-- A new generation.  It depends on the server's time, so that a delayed copy of a call does not create the generation
-- of a lost filter again: a client that knows it could not detect the loss.
local function new_generation(random)
  local time = redis.call('TIME')
  local digits = redis.sha1hex(random .. time[1] .. '.' .. time[2]):sub(1, 16)
  return (digits:gsub('..', function(pair)
    return string.char(tonumber(pair, 16))
  end))
end

-- Append the marks of a filter of this `generation` and `kind` to `items`: `markers` markers, as many items of the
-- signature, and `copies` items for each nibble of the generation.  If the filter's items are encoded, append `markers`
-- items that say so, and as many that name the encoding.  Return the number of appended items.
local function append_marks(items, generation, kind, markers, copies, encoding)
  local before = #items
  local signs = encoding == '' and { generation, kind } or { generation, kind, 'coded', 'by' .. encoding }
  for i = 0, markers - 1 do
    for _, sign in ipairs(signs) do
      items[#items + 1] = MARK_PREFIX .. sign .. string.char(i)
    end
  end
  for place = 0, 2 * #generation - 1 do
    local byte = generation:byte(math.floor(place / 2) + 1)
    local nibble = place % 2 == 0 and math.floor(byte / 16) or byte % 16
    for copy = 0, copies - 1 do
      items[#items + 1] = MARK_PREFIX .. ('%x%x%d'):format(place, nibble, copy)
    end
  end
  return #items - before
end
