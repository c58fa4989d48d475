-- Several bitmaps of another system; what is not here is as in layers.

-- piece: open
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

-- piece: refuse
-- include: chain
local refusal = cursor and own >= 1 and check_cursor(KEYS[own + 1], cursor)
  or error_reply(header and BAD_ITEMS or 'BLOOMARGUMENT the layers and the keys do not match')

-- piece: generation
local generation = ''

-- piece: find_room
-- The number of items that the newest bitmap of a chain takes before its bits must be counted again.  A bitmap that is
-- more than half full takes a call's first item, as in the other system, unless a next bitmap is impossible.
if cursor and (not has_room or room < 1) then
  -- paste: num_bits
  local next_key = KEYS[own + 2]
  local bits_left = num_bits / 2 - call('BITCOUNT', key)
  -- These change nothing, but a user without the right to what `note` does is refused before the first change.
  if not has_room and call('EXISTS', next_key) == 0 and call('PTTL', KEYS[own + 1]) then
    call('UNLINK', next_key)
    call('PEXPIRE', next_key, 1)
  end
  was_empty = was_empty or bits_left * 2 == num_bits
  room = bits_left < 0 and (has_room or cursor + 1 >= MAX_BITMAPS) and 0
    or math.max(1, math.floor(bits_left / header:byte(9)) + 1)
  has_room = true
end

-- piece: note
-- Renew a time to live.  Let all keys of a chain expire together, and begin its next bitmap if the newest is more than
-- half full.
if not cursor then
  -- paste: renew
else
  -- paste: num_bits
  local cursor_key, next_key = KEYS[own + 1], KEYS[own + 2]
  if was_empty then
    local lasts = cursor == 0 and ttl or call('PTTL', cursor_key)
    local last = string.format('%.0f', num_bits - 1)
    call('SETBIT', key, last, call('GETBIT', key, last))  -- gives the string the same length as the other system does
    if lasts > 0 then
      call('PEXPIRE', key, lasts)
    end
  end
  if has_room and room < 1 and cursor + 1 < MAX_BITMAPS and num_bits / 2 < call('BITCOUNT', key) then
    call('SETRANGE', cursor_key, 0, string.format('%.0f', cursor + 1))
    if call('EXISTS', next_key) == 1 then
      call('UNLINK', next_key)
    end
    if cursor == 0 and call('PTTL', key) > 0 then
      call('PEXPIRE', cursor_key, call('PTTL', key))
    end
  end
  if expires and header:byte(10) == 1 then
    call('PEXPIRE', cursor_key, ttl)
    call('PEXPIRE', key, ttl)
    for j = 1, older do
      call('PEXPIRE', older_keys[j], ttl)
    end
  end
end

-- piece: renew
if expires then
  call('PEXPIRE', key, ttl)
end
