there = not unwritten
for at = item, there and item + item_bytes - 1 or 0, entry_bytes do
  -- paste: read_block
  if p ~= 0 and bor(a, p) ~= a or q ~= 0 and bor(b, q) ~= b
    or r ~= 0 and bor(c, r) ~= c or s ~= 0 and bor(d, s) ~= d
    or is_large and (t ~= 0 and bor(e, t) ~= e or u ~= 0 and bor(f, u) ~= f
    or v ~= 0 and bor(g, v) ~= g or w ~= 0 and bor(h, w) ~= h) then
    there = false
    break
  end
end
