-- Write a piece of a filter's bits in the place of what the caller has read there, unless that has changed since.
--
-- KEYS[1]  the filter
-- KEYS[2]  the receipt of this call's lane; absent if the call need not be safe to send again
-- ARGV[1]  the identity of the filter that the caller knows (56 bytes)
-- ARGV[2]  the first byte of the piece, counted from the first of the bits
-- ARGV[3]  what the caller has read there
-- ARGV[4]  what is to be there: the same with more bits set
-- ARGV[5]  how many items are new with these bits
-- ARGV[6]  with KEYS[2]: the number of this call in its lane
--
-- Reply: 1, with a receipt that calls all of these items new; or 0, and nothing was changed: there is
-- something else by now, or an item of this call was asked about since, so that it is never executed

-- include: numbers
-- include: format
-- include: header
-- include: receipts

local MAX_BYTES = 131072  -- some 1 ms

local key, receipt, identity, number = KEYS[1], KEYS[2], ARGV[1], ARGV[6]
local first, found, wanted, added = read_number(ARGV[2], 0), ARGV[3], ARGV[4], read_number(ARGV[5], 1)

local misnumbered = check_number(receipt, number)
if misnumbered then
  return misnumbered
end
local kept, outdated = recall(receipt, number)
if kept or outdated then
  return outdated or #kept > 0 and 1 or 0
end
local filter, refusal = open_filter(key, identity)
if not filter then
  return refusal
elseif filter.first_bit == 0 or filter.cell_bits > 1 then
  return redis.error_reply('BLOOMARGUMENT only a filter with a header, of bits, is written piece by piece')
elseif not first or not added or not wanted or #wanted < 1 or #wanted > MAX_BYTES or #found > #wanted
  or added > #wanted * 8 or first + #wanted > math.ceil(read_u64(filter.header, 17) / 8) then
  return redis.error_reply('BLOOMARGUMENT the piece is empty, too long, or lies outside the filter, or too many items'
    .. ' are new')
end

local start = filter.first_bit / 8 + first
if redis.call('GETRANGE', key, start, start + #wanted - 1) ~= found then
  return 0
end
redis.call('SETRANGE', key, start, wanted)
note_added(filter, added)
keep(receipt, number, ('1'):rep(added))
return 1
