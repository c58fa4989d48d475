-- Growing chains of bitmaps (FORMAT.md).
-- include: numbers

-- The number under the cursor's key; 0 if the key is missing.
local function read_cursor(key)
  return tonumber(redis.call('GET', key) or 0)
end

-- The number of bits that may still be set before a bitmap is half full; negative if it is fuller than that.
local function bits_left(filter)
  return read_u64(filter.header, 17) / 2 - redis.call('BITCOUNT', filter.key)
end
