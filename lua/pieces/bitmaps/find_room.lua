-- The number of items that the newest bitmap of a chain takes before its bits must be counted again.  A bitmap that is
-- more than half full takes a call's first item, as in the other system, unless a next bitmap is impossible.
if cursor and (not has_room or room < 1) then
  -- paste: num_bits
  local next_key = KEYS[own + 2]
  local bits_left = num_bits / 2 - call('BITCOUNT', key)
  -- These change nothing, but a user without the right to what `note` does is refused before the first change.
  if not has_room and call('EXISTS', next_key) == 0 and call('PTTL', KEYS[own + 1]) then
    call('UNLINK', next_key)
    call('PEXPIRE', next_key, 1)
  end
  was_empty = was_empty or bits_left * 2 == num_bits
  room = bits_left < 0 and (has_room or cursor + 1 >= MAX_BITMAPS) and 0
    or math.max(1, math.floor(bits_left / header:byte(9)) + 1)
  has_room = true
end
