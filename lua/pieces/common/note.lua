-- Add to the item count.
if added ~= 0 then
  call('SETRANGE', key, IDENTITY_BYTES, write_u64(math.max(0, read_u64(header, IDENTITY_BYTES + 1) + added)))
end
