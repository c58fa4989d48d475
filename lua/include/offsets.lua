-- The packed offsets of a batch: decode and check all of them before the first bit is touched; and the
-- reply about them.
-- Needs numbers.lua and header.lua.

local MAX_OFFSETS = 4096  -- some 2 ms of SETBIT
local RUN = 1000          -- values unpacked at a time; Lua's stack takes fewer than 8,000

-- Before 7.2 a server makes an argument of a number by way of '%.17g', which is slower than '%d' here.
local FORMATS = (rawget(redis, 'REDIS_VERSION_NUM') or 0) < 0x00070200

-- `count` numbers from byte `first` on.
local function unpack_u32(packed, first, count)
  if struct then
    return { struct.unpack('<' .. string.rep('I4', count), packed, first) }
  end
  local values = {}
  for i = 1, count do
    local a, b, c, d = packed:byte(first, first + 3)
    values[i] = a + b * 256 + c * 65536 + d * 16777216
    first = first + 4
  end
  return values
end

-- The bit offsets in the string (header included) of all items, how many there are and how many
-- belong to one item; or nil and an error reply.
local function read_offsets(packed, header)
  local num_hashes, num_bits = header:byte(9), read_u64(header, 17)
  local total = #packed / 4
  if total < 1 or total > MAX_OFFSETS or total % num_hashes ~= 0 then
    return nil, redis.error_reply('BLOOMARGUMENT ' .. #packed .. ' bytes are not the offsets of items with '
      .. num_hashes .. ' hashes each, at most ' .. MAX_OFFSETS .. ' offsets a call')
  end
  local offsets = {}
  for first = 1, total, RUN do
    local count = math.min(RUN, total - first + 1)
    local run = unpack_u32(packed, first * 4 - 3, count)
    local largest = math.max(unpack(run, 1, count))
    if largest >= num_bits then
      return nil, redis.error_reply('BLOOMARGUMENT offset ' .. string.format('%.0f', largest)
        .. ' lies outside the filter')
    end
    for i = 1, count do
      local offset = run[i] + HEADER_BYTES * 8
      offsets[first + i - 1] = FORMATS and string.format('%d', offset) or offset
    end
  end
  return offsets, total, num_hashes
end

-- The reply for a string of one character an item: an integer for a single item, since it may stand in
-- a caller's own pipeline, and the string for more.
local function answer(characters)
  return #characters == 1 and tonumber(characters) or characters
end
