-- The words of blocks and masks (FORMAT.md).
-- include: numbers

local MAX_BLOCKS = 1024  -- about 2 ms
local BAD_BLOCKS = 'BLOOMARGUMENT the blocks are malformed, or lie outside the filter'

local NUMBER = '<I4'

-- The server's own function, or a replacement for unsigned words.
local bit = rawget(_G, 'bit')

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
