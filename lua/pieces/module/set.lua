-- The module may refuse a new item, whose claim is then restored, since its growth is limited; `begin` let it refuse
-- whatever else it may.
new = false
if known[i] == 1 then
  call('BF.ADD', key, packed[i])
elseif not has_room(call('BF.INFO', key), 1) then
  full = true
else
  local lasts = call('PTTL', claim)
  -- paste: before
  local added = redis.pcall('BF.ADD', key, packed[i])
  new, full = added == 1, type(added) == 'table'
  if full and lasts > 0 then
    call('SET', claim, mine, 'PX', lasts)
  end
end
