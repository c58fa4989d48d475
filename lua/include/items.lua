-- The items of a batch: all are decoded and checked before the first bit changes, then set or tested one by one.
-- include: numbers
-- include: format
-- include: words
-- include: blocks
-- include: counters

local MAX_OFFSETS = 4096  -- about 2 ms of SETBIT
local RUN = 1000          -- the values to unpack at a time; Lua allows fewer than 8,000

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

-- Whether a filter has the blocked layout; a bitmap of another system never has.
local function is_blocked(filter)
  return filter.first_bit > 0 and filter.header:byte(8) >= BLOCKED
end

-- The length of a packed item.
local function packed_bytes(filter)
  local code = filter.header:byte(8)
  -- paste: entry_size
  return is_blocked(filter) and filter.header:byte(10) * entry_bytes or filter.header:byte(9) * 4
end

-- The bit offsets of all items in the string (header included), or the numbers of their counters in a counting filter;
-- nil and an error reply if they are malformed.
local function read_offsets(filter, packed, num_hashes, first, stride)
  local num_bits, first_bit = num_bits_of(filter.header), filter.first_bit / filter.cell_bits
  local formats = FORMATS and filter.cell_bits == 1
  local total = #packed / stride * num_hashes
  if total < 1 or total > MAX_OFFSETS or #packed % stride ~= 0 then
    return nil, redis.error_reply('BLOOMARGUMENT ' .. #packed .. ' bytes are not the offsets of items with '
      .. num_hashes .. ' hashes each, at most ' .. MAX_OFFSETS .. ' offsets a call')
  end
  local offsets = {}
  local together = stride == num_hashes * 4 and RUN or num_hashes  -- the most numbers without a gap between them
  while #offsets < total do
    local done = #offsets
    local count = math.min(together, total - done)
    local run = unpack_u32(packed, first, count)
    first = first + (together == RUN and count * 4 or stride)
    local largest = math.max(unpack(run, 1, count))
    if largest >= num_bits then
      return nil, redis.error_reply('BLOOMARGUMENT offset ' .. string.format('%.0f', largest)
        .. ' lies outside the filter')
    end
    for i = 1, count do
      local offset = run[i] + first_bit
      offsets[done + i] = formats and string.format('%d', offset) or offset
    end
  end
  return offsets
end

-- The items of a batch for one filter or layer: their number `count`; `set(i, before)`, which sets all bits of item i
-- and returns whether one was clear; and `test(i)`, which returns whether all are set.  Or nil and an error reply.
-- For one of several layers, its part of the first item begins at byte `first`, and the parts of the next items follow
-- every `stride` bytes; `alike` are the items of a layer with the same parts.
local function read_items(filter, packed, first, stride, alike)
  stride = stride or packed_bytes(filter)
  if is_blocked(filter) then
    return read_blocks(filter, packed, first or 1, stride)
  end
  local key, num_hashes = filter.key, filter.header:byte(9)
  local offsets, refusal = alike and alike.offsets, nil
  if not offsets then
    offsets, refusal = read_offsets(filter, packed, num_hashes, first or 1, stride)
  end
  if refusal then
    return nil, refusal
  elseif filter.cell_bits > 1 then
    return read_counters(filter, offsets, num_hashes)
  end
  local function test(item)
    for i = (item - 1) * num_hashes + 1, item * num_hashes do
      if redis.call('GETBIT', key, offsets[i]) == 0 then
        return false
      end
    end
    return true
  end
  local function set(item, before)
    if test(item) then
      return false
    end
    before()
    for i = (item - 1) * num_hashes + 1, item * num_hashes do
      redis.call('SETBIT', key, offsets[i], '1')
    end
    return true
  end
  return { count = #offsets / num_hashes, set = set, test = test, offsets = offsets }
end

-- Set the items of a batch, or `only` one of them; return a character for each ('1' is new), and the growth of the item
-- count.  End before the first item that the filter has no room for, for which `set` returns nil.  Call `before` before
-- the first write.
local function set_items(items, before, only)
  local writing = false
  local function before_first()
    if not writing then
      writing = true
      before()
    end
  end
  if items.set_run then
    return items.set_run(only or 1, only or items.count, before_first)
  end
  local answers, added = {}, 0
  for i = only or 1, only or items.count do
    local new = items.set(i, before_first)
    if new == nil then
      break
    end
    answers[#answers + 1] = new and '1' or '0'
    added = added + (new and 1 or 0)
  end
  return table.concat(answers), added
end
