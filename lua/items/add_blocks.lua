-- `add` for a filter of one layer in the blocked layout, without retries about an earlier call.  It has a quarter of
-- the text, since the first call in each of a caller's pipelines carries the whole text.
--
-- KEYS[1]  the filter
-- KEYS[2]  the receipt of this call's session; absent if the call need not be safe to retry
-- ARGV[1]  the identity of the filter that the caller knows (56 bytes)
-- ARGV[2]  the packed items, one after another: blocks (FORMAT.md)
-- ARGV[3]  with KEYS[2]: the name of this call: its number in the session, a dot and a checksum (FORMAT.md)
--
-- Reply: for one item 1 (new) or 0 (present); for more items a string with one such character each

-- include: numbers
-- include: format
-- include: words

local key, receipt = KEYS[1], KEYS[2]
local identity, packed, number = ARGV[1], ARGV[2], ARGV[3]

-- paste: open_blocks
local is_single, lasting, before = #packed == stride, nil, nil
local may_run = fit
if may_run and receipt then
  -- Even for a new item, which no earlier execution added: a cloned machine may have used the session since.
  local kept = redis.pcall('GET', receipt)
  -- paste: read_receipt
  may_run = not answered
end
if may_run then
  local first_item, last_item, item_bytes = 1, #packed, stride
  if unwritten then
    -- paste: make_bits
  end
  -- paste: set_blocks
  if added > 0 then
    call('SETRANGE', key, IDENTITY_BYTES, write_u64(read_u64(header, IDENTITY_BYTES + 1) + added))
    if receipt and not is_single then
      local reply = table.concat(answers)
      -- paste: write_receipt
    end
  end
  return is_single and added or table.concat(answers)
end

-- include: session
-- include: identity

return replay(receipt, number) or select(2, read_known(key, identity)) or error_reply(BAD_BLOCKS)
