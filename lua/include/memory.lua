-- The memory that a server has left.
-- include: format

local MUCH = 2 ^ 20  -- the least bytes of a string that is worth the question

-- Raise an error unless a new string of that many bytes fits into the memory that the server has left.  The server
-- itself looks only before a script's first write, and would evict other keys for the string.  Nothing is known if the
-- user lacks the right to INFO.  Return the policy by which the server may evict the string, which has a time to live
-- if `ttl` is not 0.
local function check_memory(bytes, ttl)
  local about = bytes > MUCH and redis.pcall('INFO', 'memory')
  if type(about) ~= 'string' then
    return nil
  end
  local function number(name)
    return tonumber(about:match('\n' .. name .. ':(%d+)')) or 0
  end
  local most, policy = number('maxmemory'), about:match('\nmaxmemory_policy:([%w-]+)') or ''
  local left = most - number('used_memory') + number('mem_not_counted_for_evict')
  if most > 0 and bytes > left then
    error(string.format('OOM %.0f bytes are wanted at once, and %.0f of maxmemory (%.0f) are left', bytes,
      math.max(0, left), most))
  end
  return most > 0 and (policy:find('^allkeys') or ttl > 0 and policy:find('^volatile')) and policy or nil
end
