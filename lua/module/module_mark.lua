-- Add markers to a filter of another program in a key of the server's module, unless it has markers.
--
-- KEYS[1]  the filter
-- ARGV[1]  the items that every filter with markers has, as strings of MessagePack (FORMAT.md): one kind
-- ARGV[2]  the other kind
-- ARGV[3]  the items to add: markers, and what spells them
-- ARGV[4]  how many these are
--
-- Reply: 1; or 0 if it has markers

-- include: decimals
-- include: module_markers

local key, items, count = KEYS[1], ARGV[3], read_number(ARGV[4], 1)

if not check_markers(key, ARGV[1]) or not check_markers(key, ARGV[2]) then
  return 0
end
local about = redis.pcall('BF.INFO', key)
if about.err then
  return about
elseif not count then
  return redis.error_reply('BLOOMARGUMENT the number of the items is missing')
elseif not has_room(about, count) then
  return redis.error_reply('BLOOMFULL the filter has no room for ' .. count .. ' markers')
end
redis.call('BF.MADD', key, cmsgpack.unpack(items))
return 1
