-- Items in the blocked layout: for each block of an item its number and a mask of the item's bits in it
-- (FORMAT.md).  A block is read with one GETRANGE and written with at most one SETRANGE.  Needs
-- numbers.lua and header.lua.

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

-- The error reply for blocks that cannot be right, nil for good ones.
local function check_blocks(packed, num_blocks, blocks_an_item, first, stride)
  local total = #packed / stride * blocks_an_item
  if total < 1 or total > MAX_BLOCKS or #packed % stride ~= 0 then
    return redis.error_reply('BLOOMARGUMENT ' .. #packed .. ' bytes are not the blocks of items with '
      .. blocks_an_item .. ' blocks each, at most ' .. MAX_BLOCKS .. ' blocks a call')
  end
  for item = first, #packed, stride do
    for at = item, item + (blocks_an_item - 1) * PACKED_BYTES, PACKED_BYTES do
      local block = read_words(NUMBER, packed, at)
      if block >= num_blocks then
        return redis.error_reply('BLOOMARGUMENT block ' .. string.format('%.0f', block) .. ' lies outside the filter')
      end
    end
  end
end

-- What `read_items` returns, for a filter in this layout; and `set_run`, which sets one item after the other
-- without a call for each, and returns what `set_items` does.  The words of a block are the locals a to h,
-- those of a mask p to w: in tables they would take half as long again.
local function read_blocks(filter, packed, first_item, stride)
  local key, blocks_an_item = filter.key, filter.header:byte(10)
  local malformed = check_blocks(packed, read_u64(filter.header, 17) / 256, blocks_an_item, first_item, stride)
  if malformed then
    return nil, malformed
  end
  local call, format, first_byte = redis.call, string.format, filter.first_bit / 8

  local function set_run(first, last)
    local answers, added = {}, 0
    for i = first, last do
      local answer, at = '0', first_item + (i - 1) * stride
      for _ = 1, blocks_an_item do
        local block, p, q, r, s, t, u, v, w = read_words(PACKED, packed, at)
        local start = first_byte + block * BLOCK_BYTES
        local stop = start + BLOCK_BYTES - 1
        if FORMATS then
          start, stop = format('%d', start), format('%d', stop)
        end
        local a, b, c, d, e, f, g, h = read_words(WORDS, call('GETRANGE', key, start, stop), 1)
        local new, both = false, nil
        if p ~= 0 then both = bor(a, p) if both ~= a then a, new = both, true end end
        if q ~= 0 then both = bor(b, q) if both ~= b then b, new = both, true end end
        if r ~= 0 then both = bor(c, r) if both ~= c then c, new = both, true end end
        if s ~= 0 then both = bor(d, s) if both ~= d then d, new = both, true end end
        if t ~= 0 then both = bor(e, t) if both ~= e then e, new = both, true end end
        if u ~= 0 then both = bor(f, u) if both ~= f then f, new = both, true end end
        if v ~= 0 then both = bor(g, v) if both ~= g then g, new = both, true end end
        if w ~= 0 then both = bor(h, w) if both ~= h then h, new = both, true end end
        if new then
          call('SETRANGE', key, start, write_words(WORDS, a, b, c, d, e, f, g, h))
          answer = '1'
        end
        at = at + PACKED_BYTES
      end
      answers[i - first + 1] = answer
      if answer == '1' then
        added = added + 1
      end
    end
    return table.concat(answers), added
  end

  local function set(item)
    local _, added = set_run(item, item)
    return added > 0
  end

  local function test(item)
    local first = first_item + (item - 1) * stride
    for at = first, first + (blocks_an_item - 1) * PACKED_BYTES, PACKED_BYTES do
      local block, p, q, r, s, t, u, v, w = read_words(PACKED, packed, at)
      local start = first_byte + block * BLOCK_BYTES
      local stop = start + BLOCK_BYTES - 1
      if FORMATS then
        start, stop = format('%d', start), format('%d', stop)
      end
      local a, b, c, d, e, f, g, h = read_words(WORDS, call('GETRANGE', key, start, stop), 1)
      if p ~= 0 and bor(a, p) ~= a or q ~= 0 and bor(b, q) ~= b or r ~= 0 and bor(c, r) ~= c
        or s ~= 0 and bor(d, s) ~= d or t ~= 0 and bor(e, t) ~= e or u ~= 0 and bor(f, u) ~= f
        or v ~= 0 and bor(g, v) ~= g or w ~= 0 and bor(h, w) ~= h then
        return false
      end
    end
    return true
  end

  return { count = #packed / stride, set = set, set_run = set_run, test = test }
end
