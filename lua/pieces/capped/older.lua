-- The filter lacks the item, and none of its bits has been set: leave the loop if the filter is full.
-- paste: find_room
if room <= added then
  full = true
  break
end
