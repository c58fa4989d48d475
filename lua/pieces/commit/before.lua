-- Before the first bit of an item: delete its claim, which is gone if the item is set again.
if again then
  call('SETRANGE', key, 0, '')
elseif not is_dropped then
  is_dropped = true
  call('UNLINK', claim)
end
