-- Reply whether a filter in a key of the server's module contains an item; change nothing.
--
-- KEYS[1]  the filter
-- ARGV[1]  the markers of the filter that the caller knows, as MessagePack strings
-- ARGV[2]  the item, as a MessagePack string
--
-- Reply: 1 (present) or 0 (absent)
--
-- Commands: BF.MEXISTS 1, BF.EXISTS 1

-- include: module_markers

local key, markers, packed = KEYS[1], ARGV[1], ARGV[2]

local refusal = check_markers(key, markers)
if refusal then
  return refusal
end
return redis.call('BF.EXISTS', key, cmsgpack.unpack(packed))
