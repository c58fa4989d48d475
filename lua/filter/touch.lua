-- Rewrite a byte of a filter unchanged.  WAIT covers the writes of its own connection and all writes before them.  A
-- call that changed nothing relies on writes of other connections, so it needs a write of its own.
--
-- KEYS[1]  the filter
-- ARGV[1]  the index of the byte
--
-- Reply: the length of the string, or 0 if it ends before this byte
--
-- Commands: GETRANGE 1, SETRANGE 1

-- include: decimals

local key, index = KEYS[1], read_number(ARGV[1], 0)

if not index then
  return redis.error_reply('BLOOMARGUMENT the index of the byte is missing')
end
local byte = redis.call('GETRANGE', key, index, index)
if byte == '' then
  return 0
end
return redis.call('SETRANGE', key, index, byte)
