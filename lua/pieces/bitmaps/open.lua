-- Open several bitmaps of another system.  Sets what the pieces `open` of layers and of a bitmap set.  For a growing
-- chain, `cursor` is the number of its newest bitmap, which `was_empty` if no bit was set before.
local LAYERS_BYTES = 16  -- the part of the identity before the descriptions of bitmaps
local MAX_BITMAPS = 1024
local first_bit, unwritten, ended, has_ended, is_over, lasting, record = 0, false, false, false, false, nil, nil
local older, older_keys, older_headers, older_firsts, older_sizes = 0, {}, {}, {}, {}
local header, own, stride, item_bytes, cursor = nil, nil, 0, nil, nil
local room, has_room, ttl, expires, was_empty = math.huge, false, 0, false, false
local fit = #identity > LAYERS_BYTES and identity:sub(1, 7) == 'layers\1'
if fit then
  local number, others = unpack_numbers('>I8', identity, 9), identity:byte(8)
  if number > 0 then
    cursor, others = number - 1, number - 1
  end
  own = #KEYS - others - (cursor and 2 or 0)
  local shared = #identity == LAYERS_BYTES + BITMAP_BYTES
  fit = own >= 1 and (shared or #identity == LAYERS_BYTES + BITMAP_BYTES * (others + 1))
    and (not cursor or tonumber(redis.pcall('GET', KEYS[own + 1]) or '0') == cursor)
  for i = 0, fit and others or -1 do
    local first = LAYERS_BYTES + 1 + (shared and 0 or i * BITMAP_BYTES)
    local description = identity:sub(first, first + BITMAP_BYTES - 1)
    local size = description:byte(9) * 4
    if i == 0 then
      header, item_bytes = description, size
      ttl = unpack_numbers('>I8', header, 25)
      expires = ttl > 0 and (header:byte(10) == 1 or call('EXISTS', key) == 0)
    else
      older_keys[i], older_headers[i], older = KEYS[#KEYS - others + i], description, i
      older_firsts[i], older_sizes[i] = shared and 0 or stride, size
    end
    stride = shared and size or stride + size
  end
end
-- paste: check_layers
