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
