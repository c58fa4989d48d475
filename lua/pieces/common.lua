-- Pieces for every store and layout.

-- piece: check
if fit then
  -- paste: check_length
end

-- piece: check_offsets
-- Decode the packed items into `numbers`, and check them for a filter of one string.
local numbers
fit = fit and #packed >= stride and #packed % stride == 0 and #packed / 4 <= MAX_OFFSETS
if fit then
  numbers = unpack_u32(packed)
  -- paste: num_bits
  for n = 1, #packed / 4 do
    fit = fit and numbers[n] < num_bits
  end
end

-- piece: check_length
-- Sets `unwritten` if the bits have not been created, and clears `fit` if the string was cut.
local length = call('STRLEN', key)
unwritten = length == HEADER_BYTES and identity:byte(FLAGS) >= DEFERRED
if unwritten then
  fit = fit and unpack_numbers('>I8', header, IDENTITY_BYTES + 1) == 0
else
  -- paste: num_bits
  fit = fit and length >= HEADER_BYTES + num_bits * CELL_BITS / 8
end

-- piece: num_bits
-- The number of bits, or counters, of `header`: four bytes, of which 0 stands for 2^32.
local num_bits = (unpack_numbers('>I4', header, 21) - 1) % 2 ^ 32 + 1

-- piece: first_write
-- include: memory
-- paste: make_bits

-- piece: make_bits
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

-- piece: test
-- paste: item_test

-- piece: set
-- paste: item_set

-- piece: begin
-- paste: num_bits
call('GETBIT', key, first_bit + num_bits * CELL_BITS - 1)
-- paste: renew
if receipt then
  -- paste: write_receipt
else
  call('SETRANGE', key, 0, '')
end

-- piece: note
-- Add to the item count.
if added ~= 0 then
  local count = math.max(0, unpack_numbers('>I8', header, IDENTITY_BYTES + 1) + added)
  call('SETRANGE', key, IDENTITY_BYTES, pack_numbers('>I8', count))
end

-- piece: unusual
-- A call that is refused, that was executed before, or that asks about an earlier call.  `again` becomes the reply of
-- an earlier call that added the item.  Its bits are set already, unless the layer that had them has ended since.
-- include: decimals
-- include: receipts
local replayed = not earlier_receipt and replay(receipt, number)
if replayed then
  return replayed
elseif not fit then
  -- rare: refuse
  return refusal
end
again = replay(receipt, number) or replay_item(earlier_receipt, ARGV[4], read_number(ARGV[5], 0), not COUNTS)
if again and (COUNTS or type(again) ~= 'number') then
  return again
elseif again then
  receipt = nil
end

-- piece: other_type
-- `held` is the error for the key of a claim.  A key of another type is no claim.
if not tostring(held.err):find('WRONGTYPE') then
  call('GET', claim)  -- raises the server's error
end

-- piece: read_receipt
-- Sets `answered` if, by the value `kept` of a session's receipt, the call `number` was answered or the session has a
-- later call.  The call is not answered if the receipt is missing, belongs to an older call, or has no reply to this
-- call, which the server then refused before its first write.  A call without a number counts as answered, so that it
-- is refused.  Needs format, and the locals kept and number.
local at = number and tonumber(number:match('^%d+'))
local answered = not at or kept and (type(kept) ~= 'string'
  or (tonumber(kept:match('^%d+')) or 0) >= at and kept:find(number .. BEGUN, 1, true) ~= 1)

-- piece: receipt_text
-- The `text` of a receipt with the `reply` of the session's call `number`.  If `reply` is nil or false, the text says
-- that the call has no reply yet.  Needs format, and the locals number and reply.
local text = number .. (reply and ':' .. reply .. ';' or BEGUN)

-- piece: write_receipt
-- Store the `reply` of the session's call `number` in its receipt, which must have been read; for at most `lasting` ms,
-- if that is not nil, since items of the filter expire after that time.  A receipt with enough time to live is
-- overwritten in place, which takes half the time of SET with a time to live.  Otherwise an empty SETRANGE comes first,
-- so that a user without this right, which later writes need, changes nothing.  Needs format, and the locals receipt,
-- number, reply and lasting.
-- paste: receipt_text
if lasting or redis.call('PTTL', receipt) < LASTING_MS then
  redis.call('SETRANGE', receipt, 0, '')
  redis.call('SET', receipt, text, 'PX', lasting or RECEIPT_MS)
else
  redis.call('SETRANGE', receipt, 0, text)
end
