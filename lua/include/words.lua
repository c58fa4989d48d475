-- The words of blocks and masks (FORMAT.md).
-- include: numbers

local MAX_BLOCKS = 1024  -- about 2 ms
local BAD_BLOCKS = 'BLOOMARGUMENT the blocks are malformed, or lie outside the filter'

local NUMBER = '<I4'

-- The server's own functions, or replacements that support only the formats of block_size, with unsigned words.
local bit = rawget(_G, 'bit')

local read_words = struct and struct.unpack or function(format, bytes, first)
  local words = {}
  for i = 1, math.floor(#format / 2) do
    local a, b, c, d = bytes:byte(first, first + 3)
    words[i] = a + b * 256 + c * 65536 + d * 16777216
    first = first + 4
  end
  return unpack(words)
end

local write_words = struct and struct.pack or function(_, ...)
  local bytes = {}
  for _, word in ipairs({ ... }) do
    for _ = 1, 4 do
      bytes[#bytes + 1] = string.char(word % 256)
      word = math.floor(word / 256)
    end
  end
  return table.concat(bytes)
end

local bor = bit and bit.bor or function(left, right)
  local both, value = left, 1
  for _ = 1, 32 do
    if right % (2 * value) >= value and left % (2 * value) < value then
      both = both + value
    end
    value = 2 * value
  end
  return both
end
