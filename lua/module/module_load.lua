-- Add items to a filter in a key of the server's module, without an answer for each.
--
-- KEYS[1]  the filter
-- ARGV[1]  the markers of the filter that the caller knows, as MessagePack strings
-- ARGV[2]  the items, as MessagePack strings, one after another
--
-- Reply: 1
--
-- Commands: BF.MEXISTS 1, BF.MADD 1

-- include: module_markers

local key, markers, packed = KEYS[1], ARGV[1], ARGV[2]

local refusal = check_markers(key, markers)
if refusal then
  return refusal
end
local answers = redis.pcall('BF.MADD', key, cmsgpack.unpack(packed))
local last = answers.err and answers or answers[#answers]
if type(last) == 'table' then
  return refused(last)
end
return 1
