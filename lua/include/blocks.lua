-- Items in the blocked layout (FORMAT.md): for each block of an item, the block's number and the mask of the item's
-- bits.  A block is read with one GETRANGE and written with at most one SETRANGE.
-- include: numbers
-- include: format
-- include: words

-- `read_items` for this layout.  The result also has `set_run`, which sets items `first` to `last` without a function
-- call for each, and returns the same as `set_items`.
local function read_blocks(filter, packed, offset, stride)
  local key, blocks_an_item = filter.key, filter.header:byte(10)
  local code = filter.header:byte(8)
  -- paste: block_size
  local num_blocks = num_bits_of(filter.header) / block_bytes / 8
  -- paste: check_blocks
  if malformed then
    return nil, redis.error_reply(BAD_BLOCKS)
  end
  local call, format, first_byte = redis.call, string.format, filter.first_bit / 8
  local item_bytes = blocks_an_item * entry_bytes

  local function set_run(first, last, before)
    local first_item, last_item = offset + (first - 1) * stride, offset + (last - 1) * stride
    local last_bit, receipt, number, lasting, is_single = nil, nil, nil, nil, nil  -- `before` needs none of them
    -- paste: set_blocks
    return table.concat(answers), added
  end

  local function set(item, before)
    local _, added = set_run(item, item, before)
    return added > 0
  end

  local function test(item)
    local there, first = true, offset + (item - 1) * stride
    for at = first, first + item_bytes - 1, entry_bytes do
      -- paste: test_block
    end
    return there
  end

  return { count = #packed / stride, set = set, set_run = set_run, test = test }
end
