-- Abandon a rebuild: keep the filter as it is, and delete the successor.
--
-- KEYS[1]  the filter; if it has another identity, it is left alone
-- KEYS[2]  the successor
-- ARGV[1]  the identity of the filter (56 bytes)
-- ARGV[2]  the identity of the successor (56 bytes); empty if it has vanished
-- ARGV[3]  three random bytes: the filter gets another identity than before the rebuild, so that the script refuses a
--          delayed copy of a call that was refused during the rebuild
--
-- Reply: 1; or 0 if the filter is no longer being rebuilt, or has another successor

-- include: header
-- include: rebuilding

local key, successor_key, identity, expected, tag = KEYS[1], KEYS[2], ARGV[1], ARGV[2], ARGV[3]

if not successor_key or not expected or not identity or #identity ~= IDENTITY_BYTES then
  return redis.error_reply('BLOOMARGUMENT a filter and its successor have a key and an identity each')
elseif not tag or #tag ~= TAG_BYTES then
  return redis.error_reply('BLOOMARGUMENT the tag must have ' .. TAG_BYTES .. ' bytes')
end
local filter = open_filter(key, identity)
local successor = read_successor(successor_key, identity)
local is_expected = successor and successor:sub(1, IDENTITY_BYTES) == expected
if is_expected then
  redis.call('UNLINK', successor_key)
end
if not filter or successor and not is_expected or not is_being_rebuilt(filter.header) then
  return 0
end
mark(key, filter.header, -BEING_REBUILT, tag)
return 1
