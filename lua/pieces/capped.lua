-- A caller who stops at the filter's capacity; what is not here is as in the store.

-- piece: older
-- The filter lacks the item, and none of its bits has been set: leave the loop if the filter is full.
-- paste: find_room
if room <= added then
  full = true
  break
end

-- piece: limit
-- paste: find_room

-- piece: admit
-- Nobody holds the item: stop before it if the filter is full.
if not is_busy and held ~= mine and not replaced then
  -- paste: find_room
  local free = room
  if ARGV[6] then  -- the claims of this batch take the room that is left
    local _, made = table.concat(answers, '', 1, i - 1):gsub('c', '')
    free = room - ARGV[6] - made
  end
  if free < 1 and i == 1 then
    -- rare: no_room
  elseif free < 1 then
    count = i - 1
    break
  end
end

-- piece: refuse_one
-- Write nothing for a new item if the filter is full.
local call, room = redis.call, nil
if not known then
  -- paste: find_room
  if room < 1 then
    -- rare: no_room
  end
end

-- piece: refuse_item
if room < 1 and call('BF.EXISTS', key, items[i]) == 0 then
  return table.concat(answers), error_reply(NO_ROOM)
end

-- piece: no_room
-- include: room
do
  return error_reply(NO_ROOM)
end
