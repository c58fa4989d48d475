-- Write nothing for a new item if the filter is full.
local call, room = redis.call, nil
if not known then
  -- paste: find_room
  if room < 1 then
    -- rare: no_room
  end
end
