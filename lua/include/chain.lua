-- Growing chains of bitmaps (FORMAT.md).
-- include: decimals
-- include: numbers

local MAX_BITMAPS = 1024

-- The number under the cursor's key, 0 if the key is missing; nil and an error reply if the key holds no number.
local function read_cursor(key)
  local number = read_number(redis.call('GET', key) or '0', 0)
  if not number then
    return nil, redis.error_reply('BLOOMFOREIGN ' .. key .. ' is no number of a bitmap')
  end
  return number
end

-- An error reply unless the cursor is the `expected` one.
local function check_cursor(key, expected)
  local number, refusal = read_cursor(key)
  if number ~= expected then
    return refusal or redis.error_reply('BLOOMSTALE ' .. string.format('%.0f', number))
  end
end

-- The number of bits that may still be set before a bitmap is half full; negative if it is more than half full.
local function bits_left(filter)
  return num_bits_of(filter.header) / 2 - redis.call('BITCOUNT', filter.key)
end

-- The number of items that the newest bitmap takes before its bits must be counted again.  A bitmap that is more than
-- half full takes a call's first item, as in the other system, unless a next bitmap is impossible.
local function chain_room(filter, is_first)
  local left = bits_left(filter)
  -- These change nothing, but a user without the right to what note_put does is refused before the first change.
  if is_first and redis.call('EXISTS', filter.next) == 0 and redis.call('PTTL', filter.cursor) then
    redis.call('UNLINK', filter.next)
    redis.call('PEXPIRE', filter.next, 1)
  end
  filter.was_empty = filter.was_empty or left * 2 == num_bits_of(filter.header)
  if left < 0 and not (is_first and filter.number + 1 < MAX_BITMAPS) then
    return 0
  end
  return math.max(1, math.floor(left / filter.header:byte(9)) + 1)
end

-- Finish a write to a chain: let all its keys expire together, and begin the next bitmap if the newest is more than
-- half full.
local function note_put(filter)
  local call, key, cursor = redis.call, filter.key, filter.cursor
  if filter.was_empty then
    local ttl = filter.number == 0 and filter.ttl or call('PTTL', cursor)
    local last = string.format('%.0f', num_bits_of(filter.header) - 1)
    call('SETBIT', key, last, call('GETBIT', key, last))  -- gives the string the same length as the other system does
    if ttl > 0 then
      call('PEXPIRE', key, ttl)
    end
  end
  if filter.room == 0 and filter.number + 1 < MAX_BITMAPS and bits_left(filter) < 0 then
    call('SETRANGE', cursor, 0, string.format('%.0f', filter.number + 1))
    if call('EXISTS', filter.next) == 1 then
      call('UNLINK', filter.next)
    end
    if filter.number == 0 and call('PTTL', key) > 0 then
      call('PEXPIRE', cursor, call('PTTL', key))
    end
  end
  if filter.renews then
    call('PEXPIRE', cursor, filter.ttl)
    for _, layer in ipairs(filter.layers) do
      call('PEXPIRE', layer.key, filter.ttl)
    end
  end
end
