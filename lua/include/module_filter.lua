-- The functions of one_layer.lua for a filter in a key of the server's module.
-- include: module_markers

-- The number of keys after the keys that a script documents.
local function extra_keys()
  return 0
end

local function open_layers(keys, identity)
  local key = keys[1]
  local refusal = check_markers(key, identity)
  if refusal then
    return nil, refusal
  end
  local _, marker = cmsgpack.unpack_one(identity)
  local generation = marker:sub(MARKER_PREFIX_BYTES + 1, MARKER_PREFIX_BYTES + 8)
  return { key = key, first_bit = 0, marker = marker, generation = generation }
end

-- `read_items` for this filter.  `set_run` ends before the first item that the module refuses; it calls `before` only
-- if the filter contains the first item or has room for it.
local function read_layers(filter, packed)
  local key, items, there = filter.key, { cmsgpack.unpack(packed) }, nil

  local function test(item)
    there = there or redis.call('BF.MEXISTS', key, unpack(items))
    return there[item] == 1
  end

  local function set_run(first, last, before)
    local answers, added = {}, 0
    local known = test(first)
    if not known then
      if not has_room(redis.call('BF.INFO', key), 1) then
        return '', 0
      end
      before()
    end
    for item = first, last do
      -- The module may still refuse a new item, since its growth is limited; other refusals came in `before`.
      local add = item == first and known and redis.call or redis.pcall
      local new = add('BF.ADD', key, items[item])
      if type(new) == 'table' then
        break
      end
      answers[item - first + 1] = new == 1 and '1' or '0'
      added = added + (new == 1 and 1 or 0)
    end
    return table.concat(answers), added
  end

  return { count = #items, set_run = set_run, test = test }
end

local function note_written() end
