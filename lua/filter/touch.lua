-- Rewrite a byte of a filter unchanged.  WAIT covers the writes of its own connection and all before them; a call
-- that changed nothing relies on the writes of other connections.
--
-- KEYS[1]  the filter
-- ARGV[1]  the index of the byte
--
-- Reply: the length of the string, or 0 if it has no such byte

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
