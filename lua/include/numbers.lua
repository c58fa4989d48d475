-- Numbers in binary arguments and headers.  Servers have the library `struct` to read them; the plain Lua that
-- fakeredis embeds does not.

local struct = rawget(_G, 'struct')

-- Before 7.2 a server formats a number in a command with '%.17g', which is slower than '%d' here.
local FORMATS = (rawget(redis, 'REDIS_VERSION_NUM') or 0) < 0x00070200

-- The unsigned big-endian number in the eight bytes from `first` on.
local function read_u64(bytes, first)
  if struct then
    return (struct.unpack('>I8', bytes, first))
  end
  local number = 0
  for i = first, first + 7 do
    number = number * 256 + bytes:byte(i)
  end
  return number
end

-- The number of bits, or counters, in a header or a description; it has four bytes, since those before it have another
-- meaning (the items' encoding).
local function num_bits_of(header)
  local number
  if struct then
    number = struct.unpack('>I4', header, 21)
  else
    local a, b, c, d = header:byte(21, 24)
    number = ((a * 256 + b) * 256 + c) * 256 + d
  end
  return number > 0 and number or 4294967296
end

local function write_u64(number)
  if struct then
    return struct.pack('>I8', number)
  end
  local bytes = {}
  for i = 8, 1, -1 do
    bytes[i] = string.char(number % 256)
    number = math.floor(number / 256)
  end
  return table.concat(bytes)
end
