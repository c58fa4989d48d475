-- The offsets of bits, or the numbers of counters, in packed items (FORMAT.md).
-- include: numbers

local MAX_OFFSETS = 4096  -- about 2 ms of SETBIT
local BAD_OFFSETS = 'BLOOMARGUMENT the bytes are not offsets within the filter, at most ' .. MAX_OFFSETS .. ' a call'
local RUN = 1000          -- the values to unpack at a time; Lua allows fewer than 8,000

-- All numbers of four bytes in `packed`.
local function unpack_u32(packed)
  if struct and #packed <= RUN * 4 then
    return { struct.unpack('<' .. string.rep('I4', #packed / 4), packed) }
  end
  local numbers = {}
  for first = 1, #packed, RUN * 4 do
    local count, done = math.min(RUN, (#packed - first + 1) / 4), (first - 1) / 4
    local run = struct and { struct.unpack('<' .. string.rep('I4', count), packed, first) }
    for i = 1, count do
      if run then
        numbers[done + i] = run[i]
      else
        local a, b, c, d = packed:byte(first + 4 * i - 4, first + 4 * i - 1)
        numbers[done + i] = a + b * 256 + c * 65536 + d * 16777216
      end
    end
  end
  return numbers
end
