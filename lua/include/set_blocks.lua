-- Set the bits of all items whose first bytes in `packed` are at `first_item`, `first_item + stride` and so on to
-- `last_item`.  Sets `answers` to a character for each item ('1' is new) unless the call `is_single`, `count` to the
-- number of items and `added` to the number of new items.  Before the first write it calls `before`.  If `before` is
-- nil, it reads the filter's last bit, which the server refuses if the string is longer than it allows, and stores the
-- receipt, with the reply if the call `is_single`.  Needs all that read_block needs, and the locals stride, item_bytes,
-- before, last_bit, receipt, number, lasting and is_single.
local answers, count, added, writing = not is_single and {}, 0, 0, false
for item = first_item, last_item, stride do
  local answer = '0'
  for at = item, item + item_bytes - 1, entry_bytes do
    -- paste: read_block
    local A, B, C, D, E, F, G, H = bor(a, p), bor(b, q), bor(c, r), bor(d, s)
    local new = A ~= a or B ~= b or C ~= c or D ~= d
    if is_large then
      E, F, G, H = bor(e, t), bor(f, u), bor(g, v), bor(h, w)
      new = new or E ~= e or F ~= f or G ~= g or H ~= h
    end
    if new then
      if not writing then
        writing = true
        if before then
          before()
        else
          call('GETBIT', key, last_bit)
          if receipt then
            local reply = is_single and '1'
            -- paste: write_receipt
          end
        end
      end
      call('SETRANGE', key, start, write_words(words, A, B, C, D, E, F, G, H))
      answer = '1'
    end
  end
  count = count + 1
  if answers then
    answers[count] = answer
  end
  if answer == '1' then
    added = added + 1
  end
end
