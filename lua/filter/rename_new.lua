-- Rename strings to their final keys if all final keys are free: RENAMENX of several keys at once, with a receipt.
--
-- KEYS[1]      the receipt of this call's session
-- KEYS[2 * i]  a final key, for every i from 1; KEYS[2 * i + 1]  the temporary key of its string
-- ARGV[1]      the name of this call: its number in the session, a dot and a checksum (FORMAT.md)
-- ARGV[i + 1]  the time to live of string i in milliseconds, 0 or absent for none
--
-- Reply: 1; or 0 if a final key exists, and nothing was changed
--
-- Commands: GET 1, EXISTS 2, EXISTS 3, PEXPIRE 2, RENAME 3, PTTL 1, SETRANGE 1, SET 1, PEXPIRE 3, RENAME 3, PTTL 1,
--           SETRANGE 1

-- include: decimals
-- include: receipts

local receipt, number = KEYS[1], ARGV[1]
local strings = (#KEYS - 1) / 2

if strings < 1 or strings % 1 ~= 0 then
  return redis.error_reply('BLOOMARGUMENT the keys are a receipt, then a final one and the one written for each string')
end
local replayed = replay(receipt, number)
if replayed then
  return replayed
end
for i = 1, strings do
  if redis.call('EXISTS', KEYS[2 * i]) == 1 then
    return 0
  end
end
local function set_ttl(i, key)
  local ttl = read_number(ARGV[i + 1], 1)
  if ttl then
    redis.call('PEXPIRE', key, ttl)
  else
    redis.call('PERSIST', key)
  end
end
for i = 1, strings do
  if redis.call('EXISTS', KEYS[2 * i + 1]) == 0 then
    return redis.error_reply('BLOOMMISSING a string that was written is gone')
  end
  -- These commands do nothing; but if a right is missing, the server refuses them before the first change.
  set_ttl(i, KEYS[2 * i])
  redis.call('RENAME', KEYS[2 * i + 1], KEYS[2 * i + 1])
end
keep(receipt, number)
for i = 1, strings do
  set_ttl(i, KEYS[2 * i + 1])
  redis.call('RENAME', KEYS[2 * i + 1], KEYS[2 * i])
end
keep(receipt, number, 1)
return 1
