-- Growing chains of bitmaps (FORMAT.md).  Needs numbers.lua and header.lua.

-- The number under the cursor's key, 0 if there is none.
local function read_cursor(key)
  return tonumber(redis.call('GET', key) or 0)
end

-- How many bits of a bitmap may be set until it is half full; less than 0 if it is more than that.
local function bits_left(filter)
  return read_u64(filter.header, 17) / 2 - redis.call('BITCOUNT', filter.key)
end
