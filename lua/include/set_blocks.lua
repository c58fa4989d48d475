-- Not a function but a piece of what includes it: set the bits of the items from `first_item` to `last_item`, these
-- being places in `packed`, one every `stride` bytes; leave a character each in `answers`, '1' for new, how many
-- there are in `count` and how many are new in `added`.  Needs what read_block.lua needs, and item_bytes.
local answers, count, added = {}, 0, 0
for item = first_item, last_item, stride do
  local answer = '0'
  for at = item, item + item_bytes - 1, PACKED_BYTES do
    -- include: read_block
    local new, both = false, nil
    if p ~= 0 then both = bor(a, p) if both ~= a then a, new = both, true end end
    if q ~= 0 then both = bor(b, q) if both ~= b then b, new = both, true end end
    if r ~= 0 then both = bor(c, r) if both ~= c then c, new = both, true end end
    if s ~= 0 then both = bor(d, s) if both ~= d then d, new = both, true end end
    if t ~= 0 then both = bor(e, t) if both ~= e then e, new = both, true end end
    if u ~= 0 then both = bor(f, u) if both ~= f then f, new = both, true end end
    if v ~= 0 then both = bor(g, v) if both ~= g then g, new = both, true end end
    if w ~= 0 then both = bor(h, w) if both ~= h then h, new = both, true end end
    if new then
      call('SETRANGE', key, start, write_words(WORDS, a, b, c, d, e, f, g, h))
      answer = '1'
    end
  end
  count = count + 1
  answers[count] = answer
  if answer == '1' then
    added = added + 1
  end
end
