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
