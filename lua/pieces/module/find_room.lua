-- The number of new items that the filter takes before it has its capacity, that of its first bitmap.
if not room then
  local about = call('BF.INFO', key)
  room = about[6] > 1 and 0 or about[2] - about[8]
end
