-- Renew a time to live.  Let all keys of a chain expire together, and begin its next bitmap if the newest is more than
-- half full.
if not cursor then
  -- paste: renew
else
  -- paste: num_bits
  local cursor_key, next_key = KEYS[own + 1], KEYS[own + 2]
  if was_empty then
    local lasts = cursor == 0 and ttl or call('PTTL', cursor_key)
    local last = string.format('%.0f', num_bits - 1)
    call('SETBIT', key, last, call('GETBIT', key, last))  -- gives the string the same length as the other system does
    if lasts > 0 then
      call('PEXPIRE', key, lasts)
    end
  end
  if has_room and room < 1 and cursor + 1 < MAX_BITMAPS and num_bits / 2 < call('BITCOUNT', key) then
    call('SETRANGE', cursor_key, 0, string.format('%.0f', cursor + 1))
    if call('EXISTS', next_key) == 1 then
      call('UNLINK', next_key)
    end
    if cursor == 0 and call('PTTL', key) > 0 then
      call('PEXPIRE', cursor_key, call('PTTL', key))
    end
  end
  if expires and header:byte(10) == 1 then
    call('PEXPIRE', cursor_key, ttl)
    call('PEXPIRE', key, ttl)
    for j = 1, older do
      call('PEXPIRE', older_keys[j], ttl)
    end
  end
end
