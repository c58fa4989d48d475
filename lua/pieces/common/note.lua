-- Add to the item count.
if added ~= 0 then
  local count = math.max(0, unpack_numbers('>I8', header, IDENTITY_BYTES + 1) + added)
  call('SETRANGE', key, IDENTITY_BYTES, pack_numbers('>I8', count))
end
