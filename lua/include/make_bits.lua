-- Append the bits, zeros, to a filter that is its `header` alone.  The string is created again, since the server would
-- allocate up to twice the size for a string that grows.  Every write that the server may refuse comes before the first
-- change.  Needs call, key and header.
local left = call('PTTL', key)  -- 0 in the key's last millisecond
call('SETRANGE', key, 0, '')
if left >= 0 then
  call('PEXPIRE', key, left + 1)
end
call('UNLINK', key)
call('SETRANGE', key, HEADER_BYTES + math.ceil(num_bits_of(header) / 8) - 1, '\0')
call('SETRANGE', key, 0, header)
if left >= 0 then
  call('PEXPIRE', key, left + 1)
end
