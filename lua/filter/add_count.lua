-- Add to the item count, for items whose bits were set by other scripts.
--
-- KEYS[1]  the filter; the hash of its parameters comes last, if it has one (FORMAT.md)
-- KEYS[2]  the receipt of this call's lane; absent if the call need not be safe to send again
-- ARGV[1]  the identity of the filter that the caller knows (56 bytes)
-- ARGV[2]  the number of items that were new
-- ARGV[3]  with KEYS[2]: the number of this call in its lane, a dot and a check (FORMAT.md)
--
-- Reply: 1

-- include: decimals
-- include: header
-- include: receipts

local key, identity, added, number = KEYS[1], ARGV[1], read_number(ARGV[2], 0), ARGV[3]
local receipt = number and KEYS[2]

local replayed = replay(receipt, number)
if replayed then
  return replayed
end
local filter, refusal = open_filter(key, identity, KEYS)
if not filter then
  return refusal
elseif not added then
  return redis.error_reply('BLOOMARGUMENT the number of new items must be an integer from 0 up')
end
begin(filter, receipt, number)
note_added(filter, added)
keep(receipt, number, 1)
return 1
