-- Nobody holds the item: stop before it if the filter is full.
if not is_busy and held ~= mine and not replaced then
  -- paste: find_room
  if room < 1 and i == 1 then
    -- rare: no_room
  elseif room < 1 then
    count = i - 1
    break
  end
end
