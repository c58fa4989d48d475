-- The newest layer lacks the item, and none of its bits has been set: leave the loop if a layer before it has the item,
-- or if it has no room.
local there = false
if older > 0 then
  -- paste: test_older
end
if there then
  break
end
-- paste: find_room
if room < 1 then
  full = true
  break
end
room = room - 1
