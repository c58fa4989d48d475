-- What a filter of several layers consists of (FORMAT.md).  Those of this library are a stack: a root, which is a
-- key of its own and says what layers there are, and the layers.  Needs numbers.lua and header.lua.

local LAYERS_BYTES = 16
local PARAMETERS_BYTES = 48  -- of the header of a layer: all that does not depend on when it was begun
local ROOT_BYTES = 88        -- without the times at which the layers were begun
local MAX_ROOT_BYTES = ROOT_BYTES + 8 * 256
local ROTATING = 2           -- the kind of a stack whose layers belong to slices of time

local function is_layered(identity)
  return identity and #identity > LAYERS_BYTES and identity:sub(1, 6) == 'layers'
end

-- How many keys at the end of all belong to other layers, and to the root or the cursor, which counts them.
local function extra_keys(identity)
  return is_layered(identity) and identity:byte(8) + (read_u64(identity, 9) > 0 and 1 or 0) or 0
end

local function is_stack(identity)
  return is_layered(identity) and identity:byte(7) == 2
end

-- The server's clock in microseconds.
local function now()
  local time = redis.call('TIME')
  return time[1] * 1000000 + time[2]
end

-- The root under a key, '' if there is none, or nil and an error reply.
local function read_root(key)
  local root = redis.pcall('GETRANGE', key, 0, MAX_ROOT_BYTES)
  if type(root) == 'table' then
    return nil, root
  elseif root ~= '' and root:sub(1, 6) ~= 'bloomr' then
    return nil, redis.error_reply('BLOOMFOREIGN the key holds a string that is no filter')
  end
  return root
end

-- How long a slice of time lasts, in microseconds, and how many an item stays; nil for a stack without slices.
local function slices_of(root)
  if root:byte(11) == ROTATING then
    return read_u64(root, 65), read_u64(root, 73)
  end
end

-- When a layer was begun, the newest one being number 0.
local function begun(root, layer)
  local at = #root - 8 * layer - 7
  return read_u64(root, at)
end

-- The slice that a time is in, and the last slice in which nothing stays any more.
local function slice_at(time, width, slices)
  local slice = math.floor(time / width)
  return slice, slice - slices - 1
end

-- The root that the caller expects if it is there, or would be if it had not come to its end meanwhile, as all
-- layers had; or nil and an error reply.
local function check_root(keys, identity)
  local others, length = identity:byte(8), read_u64(identity, 9)
  local described = #identity - LAYERS_BYTES - length
  if length ~= ROOT_BYTES + 8 * (others + 1) or #keys < others + 2
    or described ~= PARAMETERS_BYTES and described ~= PARAMETERS_BYTES * (others + 1) then
    return nil, redis.error_reply('BLOOMARGUMENT the layers and the keys do not match')
  end
  local expected = identity:sub(LAYERS_BYTES + 1, LAYERS_BYTES + length)
  local root, refusal = read_root(keys[#keys - others])
  if root == expected then
    return expected
  elseif root == '' then
    local width, slices = slices_of(expected)
    if width then
      local _, past = slice_at(now(), width, slices)
      if slice_at(begun(expected, 0), width, slices) <= past then
        return expected
      end
    end
    return nil, redis.error_reply('BLOOMMISSING there is no such key')
  elseif root then
    return nil, redis.error_reply('BLOOMCHANGED ' .. hex(root))
  end
  return nil, refusal
end

-- The keys of all that the expected filter consists of, or nil and an error reply.
local function keys_of(keys, identity)
  if not is_stack(identity) then
    local filter, refusal = open_filter(keys[1], identity)
    return filter and { keys[1] }, refusal
  end
  local root, refusal = check_root(keys, identity)
  if not root then
    return nil, refusal
  end
  local all = { keys[1] }
  for i = #keys - extra_keys(identity) + 1, #keys do
    all[#all + 1] = keys[i]
  end
  return all
end
