-- Write a byte of a filter as it is.  WAIT covers what its own connection wrote and all that came
-- before, but a call that changed nothing relies on what other connections wrote.
--
-- KEYS[1]  the filter
-- ARGV[1]  the place of the byte
--
-- Reply: the length of the string, or 0 if it has no such byte

-- include: numbers

local key, place = KEYS[1], read_number(ARGV[1], 0)

if not place then
  return redis.error_reply('BLOOMARGUMENT the place of the byte is missing')
end
local byte = redis.call('GETRANGE', key, place, place)
if byte == '' then
  return 0
end
return redis.call('SETRANGE', key, place, byte)
