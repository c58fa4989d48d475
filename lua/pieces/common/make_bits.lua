-- Append the bits, zeros, to a filter that is its `header` alone.  The string is created again, since the server would
-- allocate up to twice the size for a string that grows.  Each command that the server may refuse comes before the
-- first change, and so do those of the script that adds items then.  Needs memory, call, key and header.
-- paste: num_bits
local left, last = call('PTTL', key), HEADER_BYTES + math.ceil(num_bits / 8) - 1
check_memory(last + 1, 0)
call('GETBIT', key, last * 8)  -- refuses a string that is longer than the server allows
call('SETBIT', key, 0, 0)  -- a header begins with this bit
call('SETRANGE', key, 0, '')
call('SET', key, header, 'KEEPTTL')
if left >= 0 then
  call('PEXPIRE', key, left + 1)  -- `left` is 0 in the key's last millisecond
end
call('UNLINK', key)
call('SETRANGE', key, last, '\0')
call('SETRANGE', key, 0, header)
if left >= 0 then
  call('PEXPIRE', key, left + 1)
end
