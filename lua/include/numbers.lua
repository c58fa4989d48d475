-- Numbers in binary arguments and headers.  Servers have the library `struct` to read them; the plain Lua that
-- fakeredis embeds does not.

local struct = rawget(_G, 'struct')

-- Before 7.2 a server formats a number in a command with '%.17g', which is slower than '%d' here.
local FORMATS = (rawget(redis, 'REDIS_VERSION_NUM') or 0) < 0x00070200

-- The server's own functions, or replacements for the formats that scripts use: numbers of 4 or 8 bytes, unsigned.  The
-- server's `unpack_numbers` also returns the index of the byte behind the last number.
local unpack_numbers = struct and struct.unpack or function(format, bytes, first)
  local numbers, is_big = {}, format:sub(1, 1) == '>'
  for size in format:gmatch('%d') do
    local number = 0
    for i = 0, size - 1 do
      number = number * 256 + bytes:byte(first + (is_big and i or size - 1 - i))
    end
    numbers[#numbers + 1], first = number, first + size
  end
  return unpack(numbers)
end

local pack_numbers = struct and struct.pack or function(format, ...)
  local bytes, is_big = {}, format:sub(1, 1) == '>'  -- big-endian formats have one number
  for _, number in ipairs({ ... }) do
    for _ = 1, format:match('%d') do
      table.insert(bytes, is_big and 1 or #bytes + 1, string.char(number % 256))
      number = math.floor(number / 256)
    end
  end
  return table.concat(bytes)
end
