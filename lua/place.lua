-- Give a string that was written under another name its own, unless that is taken.
--
-- KEYS[1]  the key to be
-- KEYS[2]  the key as which it was written
-- KEYS[3]  the receipt of this call's lane
-- ARGV[1]  the number of this call in its lane
--
-- Reply: 1, or 0 if the name is taken, and then nothing was changed

-- include: numbers
-- include: format
-- include: answer
-- include: receipts

local key, written, receipt, number = KEYS[1], KEYS[2], KEYS[3], ARGV[1]

if not receipt then
  return redis.error_reply('BLOOMARGUMENT three keys are needed: the one to be, the one that is, a receipt')
end
local replayed = replay(receipt, number)
if replayed then
  return replayed
elseif redis.call('EXISTS', key) == 1 then
  return 0
end
redis.call('PERSIST', written)
redis.call('RENAME', written, key)
keep(receipt, number, 1)
return 1
