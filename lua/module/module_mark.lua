-- Add markers to a filter of another program in a key of the server's module, unless it has markers.
--
-- KEYS[1]  the filter
-- ARGV[1]  the items that every filter with markers has, as strings of MessagePack (FORMAT.md): one kind
-- ARGV[2]  the other kind
-- ARGV[3]  random bytes, for its generation
-- ARGV[4]  the number of its markers
-- ARGV[5]  that of the copies of what spells the generation
-- ARGV[6]  the encoding of its items in eight hexadecimal digits, '' for none
--
-- Reply: 1; or 0 if it has markers

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
