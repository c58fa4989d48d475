-- Remove a batch of items from a counting filter: lower the counters of each item, and reply which were present.
--
-- KEYS[1]  the filter
-- KEYS[2]  the receipt of this call's session; absent if the call need not be safe to retry
-- KEYS[3]  for a retry about one item: the receipt of the session of the earlier call, whose reply was lost; else
--          absent
-- ARGV[1]  the identity of the filter that the caller knows (56 bytes)
-- ARGV[2]  the packed items, one after another: the numbers of their counters (FORMAT.md)
-- ARGV[3]  with KEYS[2]: the name of this call: its number in the session, a dot and a checksum (FORMAT.md)
-- ARGV[4]  with KEYS[3]: the name of the earlier call
-- ARGV[5]  with KEYS[3]: the index of the item in the earlier call, from 0
--
-- Reply: for one item 1 (removed) or 0 (absent); for more items a string with one such character each
--
-- Commands of one,counters: GETRANGE 1, STRLEN 1, GET 2, GETBIT 1, PTTL 2, SETRANGE 2, SET 2, 2 BITFIELD 1, SETRANGE 1,
--                           SETRANGE 2

-- include: numbers
-- include: format
-- paste: names

local READS, CHECKS_LENGTH = false, true
local call, key, identity, packed, number = redis.call, KEYS[1], ARGV[1], ARGV[2], ARGV[3]
-- paste: open
local receipt, earlier_receipt, again = own >= 2 and KEYS[2], own >= 3 and KEYS[3], nil
local may_run = fit and not earlier_receipt
if may_run and receipt then
  local kept = redis.pcall('GET', receipt)
  -- paste: read_receipt
  may_run = not answered
end
if not may_run then
  -- rare: unusual
end
local reply = nil
-- paste: begin
local answers, count, added = {}, 0, 0
for item = 1, #packed, stride do
  -- paste: item_lower
  count = count + 1
  answers[count] = was_in and '1' or '0'
  added = added - (was_in and 1 or 0)
end
-- paste: note
reply = table.concat(answers)
if receipt then  -- even if nothing was removed: a second execution might remove something
  -- paste: receipt_text
  call('SETRANGE', receipt, 0, text)
end
return count == 1 and tonumber(reply) or reply
