new = false
for at = item, item + item_bytes - 1, entry_bytes do
  -- paste: read_block
  local A, B, C, D, E, F, G, H = bor(a, p), bor(b, q), bor(c, r), bor(d, s), nil, nil, nil, nil
  local changed = A ~= a or B ~= b or C ~= c or D ~= d
  if is_large then
    E, F, G, H = bor(e, t), bor(f, u), bor(g, v), bor(h, w)
    changed = changed or E ~= e or F ~= f or G ~= g or H ~= h
  end
  if changed then
    if not new then
      -- paste: older
      new = true
      -- paste: before
    end
    call('SETRANGE', key, start, pack_numbers(words, A, B, C, D, E, F, G, H))
  end
end
