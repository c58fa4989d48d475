-- Reply whether an item is in a filter in a key of the server's module; nothing is changed.
--
-- KEYS[1]  the filter
-- ARGV[1]  the markers of the filter that the caller knows, as strings of MessagePack
-- ARGV[2]  the item, as a string of MessagePack
--
-- Reply: 1 (present) or 0 (absent)

-- include: module_markers

local key, markers, packed = KEYS[1], ARGV[1], ARGV[2]

local refusal = check_markers(key, markers)
if refusal then
  return refusal
end
return redis.call('BF.EXISTS', key, cmsgpack.unpack(packed))
