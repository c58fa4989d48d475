-- Items in a filter that counts: a counter of four bits in the place of each bit (FORMAT.md).  One that has
-- reached 15 stays there, since it cannot be known by how much it would have passed it.  Needs header.lua.

local MOST = 15

-- What `read_items` returns, of the numbers of the items' counters; and `lower(i)`, which lowers all counters
-- of item i and says true, unless one is 0.  `set_run` counts every item, whether it was new or not.
local function read_counters(filter, counters, num_hashes)
  local key, call = filter.key, redis.call
  local seen = {}

  -- The place of each counter of an item, once where probes repeat.
  local function places(item)
    local found, mark = {}, {}
    for i = (item - 1) * num_hashes + 1, item * num_hashes do
      local counter = counters[i]
      if seen[counter] ~= mark then
        seen[counter] = mark
        found[#found + 1] = '#' .. counter
      end
    end
    return found
  end

  local function set(item)
    local command, size = { 'BITFIELD', key, 'OVERFLOW', 'SAT' }, 4
    for _, place in ipairs(places(item)) do
      command[size + 1], command[size + 2], command[size + 3], command[size + 4] = 'INCRBY', 'u4', place, '1'
      size = size + 4
    end
    for _, value in ipairs(call(unpack(command, 1, size))) do
      if value == 1 then
        return true
      end
    end
    return false
  end

  local function set_run(first, last)
    local answers = {}
    for item = first, last do
      answers[#answers + 1] = set(item) and '1' or '0'
    end
    return table.concat(answers), #answers
  end

  local function test(item)
    for i = (item - 1) * num_hashes + 1, item * num_hashes do
      local counter = counters[i]
      local at = math.floor(counter / 2)
      if FORMATS then
        at = string.format('%d', at)
      end
      local pair = call('GETRANGE', key, at, at):byte()  -- the even one has the upper half
      if counter % 2 == 0 and pair <= MOST or counter % 2 == 1 and pair % (MOST + 1) == 0 then
        return false
      end
    end
    return true
  end

  local function lower(item)
    local found = places(item)
    local command, size = { 'BITFIELD', key }, 2
    for _, place in ipairs(found) do
      command[size + 1], command[size + 2], command[size + 3] = 'GET', 'u4', place
      size = size + 3
    end
    local values = call(unpack(command, 1, size))
    size = 2
    for i, place in ipairs(found) do
      if values[i] == 0 then
        return false
      elseif values[i] < MOST then
        command[size + 1], command[size + 2], command[size + 3], command[size + 4] = 'INCRBY', 'u4', place, '-1'
        size = size + 4
      end
    end
    if size > 2 then
      call(unpack(command, 1, size))
    end
    return true
  end

  return { count = #counters / num_hashes, set = set, set_run = set_run, test = test, lower = lower }
end
