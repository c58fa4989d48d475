-- Set the bits of all items whose first bytes in `packed` are at `first_item`, `first_item + stride` and so on to
-- `last_item`.  Leaves a character for each item in `answers` ('1' is new), the number of items in `count` and the
-- number of new ones in `added`.  Calls `before`, if it is not nil, before the first write; else makes sure here that
-- nothing refuses the writes, and keeps the receipt, for several items without a reply.  Needs what read_block needs,
-- and the locals stride, item_bytes, before, receipt and number.
local answers, count, added, writing = {}, 0, 0, false
for item = first_item, last_item, stride do
  local answer = '0'
  for at = item, item + item_bytes - 1, PACKED_BYTES do
    -- paste: read_block
    local new, both = false
    if p ~= 0 then both = bor(a, p) if both ~= a then a, new = both, true end end
    if q ~= 0 then both = bor(b, q) if both ~= b then b, new = both, true end end
    if r ~= 0 then both = bor(c, r) if both ~= c then c, new = both, true end end
    if s ~= 0 then both = bor(d, s) if both ~= d then d, new = both, true end end
    if t ~= 0 then both = bor(e, t) if both ~= e then e, new = both, true end end
    if u ~= 0 then both = bor(f, u) if both ~= f then f, new = both, true end end
    if v ~= 0 then both = bor(g, v) if both ~= g then g, new = both, true end end
    if w ~= 0 then both = bor(h, w) if both ~= h then h, new = both, true end end
    if new then
      if not writing then
        writing = true
        if before then
          before()
        else
          call('SETRANGE', key, 0, '')
          if receipt then
            call('SET', receipt, number .. (#packed == stride and ':1' or BEGUN), 'PX', RECEIPT_MS)
          end
        end
      end
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
