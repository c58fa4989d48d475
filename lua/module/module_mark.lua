-- Add markers to a filter of another program in a key of the server's module, unless it has markers already.
--
-- KEYS[1]  the filter
-- ARGV[1]  the signature of filters that this library created, as MessagePack strings (FORMAT.md)
-- ARGV[2]  the signature of filters that another program created
-- ARGV[3]  random bytes, for the filter's generation
-- ARGV[4]  the number of markers
-- ARGV[5]  the number of items for each nibble of the generation
-- ARGV[6]  the encoding of the filter's items in eight hexadecimal digits, '' for none
--
-- Reply: 1; or 0 if the filter has markers
--
-- Commands: BF.MEXISTS 1, EXISTS 1, BF.INFO 1, BF.MEXISTS 1, EXISTS 1, 2 BF.INFO 1, TIME, BF.MADD 1

-- include: decimals
-- include: module_markers
-- include: module_marks

local key, random, items = KEYS[1], ARGV[3], {}
local markers, copies, encoding = read_number(ARGV[4], 1), read_number(ARGV[5], 1), ARGV[6]

if not check_markers(key, ARGV[1]) or not check_markers(key, ARGV[2]) then
  return 0
end
local about = redis.pcall('BF.INFO', key)
if about.err then
  return about
elseif not random or not markers or not copies or not encoding then
  return redis.error_reply('BLOOMARGUMENT the random bytes or the numbers of the markers are missing')
end
local count = append_marks(items, new_generation(random), 'adopted', markers, copies, encoding)
if not has_room(about, count) then
  return redis.error_reply('BLOOMFULL the filter has no room for ' .. count .. ' markers')
end
redis.call('BF.MADD', key, unpack(items))
return 1
