-- The OR of bytes into a filter's bits.
-- include: header

local MAX_BYTES = 131072  -- about 0.5 ms

-- Keep temporary keys from replicas and the append-only file, on servers that allow it.
local function replicate(what)
  if redis.set_repl then
    redis.set_repl(what)
  end
end

-- OR bytes into a filter's string from byte `start` on; return the previous bytes, none if no bit of them was set,
-- and the number of newly set bits.
local function or_bytes(key, start, bytes, old_key, new_key)
  local stop = start + #bytes - 1
  if redis.call('BITCOUNT', key, start, stop) == 0 then  -- takes a third of the time of the copies below
    if bytes:find('[^%z]') then
      redis.call('SETRANGE', key, start, bytes)
    end
    return '', redis.call('BITCOUNT', key, start, stop)
  end
  local old = redis.call('GETRANGE', key, start, stop)
  replicate(redis.REPL_NONE)
  -- The keys are free, so these do nothing; but a user without the right to one of them leaves nothing behind.
  redis.call('UNLINK', old_key, new_key)
  redis.call('BITOP', 'OR', new_key, new_key, old_key)
  redis.call('GET', new_key)
  redis.call('SET', old_key, old)
  redis.call('SET', new_key, bytes)
  redis.call('BITOP', 'OR', new_key, new_key, old_key)
  local both = redis.call('GET', new_key)
  local added = both ~= old and redis.call('BITCOUNT', new_key) - redis.call('BITCOUNT', old_key) or 0
  redis.call('UNLINK', old_key, new_key)
  replicate(redis.REPL_ALL)
  if both ~= old then
    redis.call('SETRANGE', key, start, both)
  end
  return old, added
end
