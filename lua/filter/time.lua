-- Read the clock of the server that holds a key; change nothing.
--
-- KEYS[1]  the key
--
-- Reply: microseconds since 1970, as text
--
-- Commands: TIME

-- include: clock

if #KEYS[1] == 0 then
  return redis.error_reply('BLOOMARGUMENT the key is missing')
end
return string.format('%.0f', clock())
