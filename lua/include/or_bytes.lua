-- Setting bits of a filter from bytes, as many as a script may take.
-- include: header

local MAX_BYTES = 131072  -- about 0.5 ms

-- Keeps temporary keys from replicas and the append-only file, on servers that allow it.
local function replicate(what)
  if redis.set_repl then
    redis.set_repl(what)
  end
end

-- OR bytes into a filter from byte `first` of its bits on; return the bytes that were there, and how many bits are new.
local function or_bytes(filter, first, bytes, old_key, new_key)
  local start = filter.first_bit / 8 + first
  local old = redis.call('GETRANGE', filter.key, start, start + #bytes - 1)
  replicate(redis.REPL_NONE)
  redis.call('UNLINK', old_key, new_key)  -- who may not, leaves nothing behind
  redis.call('SET', old_key, old)
  redis.call('SET', new_key, bytes)
  redis.call('BITOP', 'OR', new_key, new_key, old_key)
  local both = redis.call('GET', new_key)
  local added = both ~= old and redis.call('BITCOUNT', new_key) - redis.call('BITCOUNT', old_key) or 0
  redis.call('UNLINK', old_key, new_key)
  replicate(redis.REPL_ALL)
  if both ~= old then
    redis.call('SETRANGE', filter.key, start, both)
  end
  return old, added
end
