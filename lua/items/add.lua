-- Add a batch of items: set all bits of each item, and reply which items were new.
--
-- KEYS[1]  the filter, or the newest of its layers (further keys come last: FORMAT.md)
-- KEYS[2]  the receipt of this call's session; absent if the call need not be safe to retry
-- KEYS[3]  for a retry about one item: the receipt of the session of the earlier call, whose reply was lost; else
--          absent
-- ARGV[1]  the identity of the filter that the caller knows (56 bytes)
-- ARGV[2]  the packed items, one after another: bit offsets or blocks (FORMAT.md)
-- ARGV[3]  with KEYS[2]: the name of this call: its number in the session, a dot and a checksum (FORMAT.md)
-- ARGV[4]  with KEYS[3]: the name of the earlier call
-- ARGV[5]  with KEYS[3]: the index of the item in the earlier call, from 0
--
-- Reply: for one item 1 (new) or 0 (present); for more items a string with one such character each, which ends
-- before the first new item that there is no room for
--
-- Commands of one,blocks: GETRANGE 1, STRLEN 1, GET 2, GETRANGE 1, GETBIT 1, PTTL 2, SETRANGE 2, 2 SETRANGE 1

-- include: numbers
-- include: format
-- include: room
-- paste: names

local READS, CHECKS_LENGTH = false, #KEYS > 2  -- a retry about an earlier call must not block it in vain
local call, key, identity, packed, number = redis.call, KEYS[1], ARGV[1], ARGV[2], ARGV[3]
-- paste: open
local receipt, earlier_receipt, again = own and own >= 2 and KEYS[2], own and own >= 3 and KEYS[3], nil
local may_run = fit and not earlier_receipt
if may_run and receipt then
  -- Even for a new item, which no earlier execution added: a cloned machine may have used the session since.
  local kept = redis.pcall('GET', receipt)
  -- paste: read_receipt
  may_run = not answered
end
if not may_run then
  -- rare: unusual
end
-- paste: prepare
local is_single, is_writing, new, full = #packed == stride, false, false, false
local answers, count, added = not is_single and {}, 0, 0
for item = 1, #packed, stride do
  -- paste: set
  if full then
    break
  end
  count = count + 1
  if answers then
    answers[count] = new and '1' or '0'
  end
  if new or COUNTS then
    added = added + 1
  end
end
if count == 0 and not again then
  return error_reply(NO_ROOM)
end
-- paste: note
if again then
  return again
end
local reply = is_single and (new and 1 or 0) or table.concat(answers)
if receipt and added > 0 and not (EARLY and is_single) then
  -- paste: receipt_text
  call('SETRANGE', receipt, 0, text)
end
return count == 1 and tonumber(reply) or reply

-- piece: before
-- Before the first write of the call: let the server refuse what it may refuse, and write the receipt, with the reply
-- if that is known.
if not is_writing then
  is_writing = true
  -- paste: num_bits
  call('GETBIT', key, first_bit + num_bits * CELL_BITS - 1)
  -- paste: renew
  if receipt then
    local reply = is_single and EARLY and '1'
    -- paste: write_receipt
  elseif not EARLY then
    call('SETRANGE', key, 0, '')
  end
end
