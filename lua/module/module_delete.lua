-- Delete a filter in a key of the server's module.
--
-- KEYS[1]  the filter
-- KEYS[2]  the receipt of this call's session; absent if the call need not be safe to retry
-- ARGV[1]  the markers of the filter that the caller knows, as MessagePack strings
-- ARGV[2]  with KEYS[2]: the name of this call: its number in the session, a dot and a checksum (FORMAT.md)
--
-- Reply: 1
--
-- Commands: GET 2, BF.MEXISTS 1, PTTL 2, SETRANGE 2, UNLINK 1, PTTL 2, SETRANGE 2

-- include: module_markers
-- include: receipts

local key, receipt, markers, number = KEYS[1], KEYS[2], ARGV[1], ARGV[2]

local refusal = replay(receipt, number) or check_markers(key, markers)
if refusal then
  return refusal
end
keep(receipt, number)
redis.call('UNLINK', key)
keep(receipt, number, 1)
return 1
