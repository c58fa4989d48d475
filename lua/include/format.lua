-- What filters and items look like in bytes (FORMAT.md), and how long a receipt is kept.  Needs numbers.lua.

local RECEIPT_MS = 120000

local HEADER_BYTES = 64
local IDENTITY_BYTES = 56
local BITMAP_BYTES = 32
local COUNTING = 4  -- a kind of filter

local BLOCKED = 2        -- the layout's code
local BLOCK_BYTES = 32
local MAX_BLOCKS = 1024  -- some 2 ms

local NUMBER = '<I4'
local WORDS = '<i4i4i4i4i4i4i4i4'
local PACKED, PACKED_BYTES = '<I4i4i4i4i4i4i4i4i4', 36

-- The server's own functions, or ones that know the formats above and no others, and take all words for
-- unsigned.
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
  local united, value = left, 1
  for _ = 1, 32 do
    if right % (2 * value) >= value and left % (2 * value) < value then
      united = united + value
    end
    value = 2 * value
  end
  return united
end
