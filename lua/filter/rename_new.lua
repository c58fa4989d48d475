-- Rename a string to its final key, if that is free: RENAMENX with a receipt.
--
-- KEYS[1]  the final key
-- KEYS[2]  the key under which the string was written
-- KEYS[3]  the receipt of this call's lane
-- ARGV[1]  the number of this call in its lane, a dot and a check (FORMAT.md)
--
-- Reply: 1; or 0 if the final key is taken, and nothing was changed

-- include: receipts

local key, written, receipt, number = KEYS[1], KEYS[2], KEYS[3], ARGV[1]

if not receipt then
  return redis.error_reply('BLOOMARGUMENT three keys are needed: the final one, the one written, a receipt')
end
local replayed = replay(receipt, number)
if replayed then
  return replayed
elseif redis.call('EXISTS', key) == 1 then
  return 0
end
keep(receipt, number, BEGUN:sub(2))
redis.call('PERSIST', written)
redis.call('RENAME', written, key)
keep(receipt, number, 1)
return 1
