-- Items in a counting filter (FORMAT.md), which has a counter of four bits in place of each bit.  A counter that has
-- reached 15 stays at 15, since the number of items beyond that is unknown.
-- include: numbers

local MOST = 15

-- `read_items` for a counting filter, given the numbers of the items' counters.  The result also has `lower(i)`, which
-- lowers all counters of item i and returns true, or returns false if one is 0.  `set_run` counts new and known items.
local function read_counters(filter, counters, num_hashes)
  local key, call, format = filter.key, redis.call, string.format
  local seen = {}

  -- Write the counters of an item into a command, from index `at` on and `words` apart, each once even if hashes
  -- repeat; return the number of counters.
  local function fill(command, at, words, item)
    local mark, many = {}, 0
    for i = (item - 1) * num_hashes + 1, item * num_hashes do
      local counter = counters[i]
      if seen[counter] ~= mark then
        seen[counter] = mark
        command[at] = format('#%d', counter)
        many, at = many + 1, at + words
      end
    end
    return many
  end

  local raising  -- the command of `set`, in which only the counters change from item to item
  local function set(item, before)
    before()
    if not raising then
      raising = { 'BITFIELD', key, 'OVERFLOW', 'SAT' }
      for at = 5, 4 + 4 * num_hashes, 4 do
        raising[at], raising[at + 1], raising[at + 2], raising[at + 3] = 'INCRBY', 'u4', '', '1'
      end
    end
    local many = fill(raising, 7, 4, item)
    local values = call(unpack(raising, 1, 4 + 4 * many))
    for i = 1, many do
      if values[i] == 1 then
        return true
      end
    end
    return false
  end

  local function set_run(first, last, before)
    local answers = {}
    for item = first, last do
      answers[item - first + 1] = set(item, before) and '1' or '0'
    end
    return table.concat(answers), #answers
  end

  local function test(item)
    for i = (item - 1) * num_hashes + 1, item * num_hashes do
      local counter = counters[i]
      local odd = counter % 2
      local at = (counter - odd) / 2
      if FORMATS then
        at = format('%d', at)
      end
      local pair = call('GETRANGE', key, at, at):byte()  -- the even counter is the upper half
      if (odd == 0 and pair <= MOST) or (odd == 1 and pair % (MOST + 1) == 0) then
        return false
      end
    end
    return true
  end

  local function lower(item)
    local reading = { 'BITFIELD', key }
    for at = 3, 2 + 3 * num_hashes, 3 do
      reading[at], reading[at + 1], reading[at + 2] = 'GET', 'u4', ''
    end
    local many = fill(reading, 5, 3, item)
    local values = call(unpack(reading, 1, 2 + 3 * many))
    local command, size = { 'BITFIELD', key }, 2
    for i = 1, many do
      if values[i] == 0 then
        return false
      elseif values[i] < MOST then
        command[size + 1], command[size + 2] = 'INCRBY', 'u4'
        command[size + 3], command[size + 4] = reading[2 + 3 * i], '-1'
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
