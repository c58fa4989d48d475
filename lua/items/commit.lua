-- Add items and delete their claims; an item is added only if the caller still holds its claim.
--
-- KEYS[1]              the filter, or the newest of its layers (further keys come last: FORMAT.md)
-- KEYS[1 + i]          the claim of item i, from 1
-- KEYS[1 + count + i]  the receipt of the session of commit i; absent if the call need not be safe to retry
-- ARGV[1]              the identity of the filter that the caller knows (56 bytes)
-- ARGV[2]              the packed items, one after another: bit offsets or blocks (FORMAT.md)
-- ARGV[3]              the owners of the claims, 16 bytes an item
-- ARGV[3 + i]          with receipts, the name of commit i (FORMAT.md): its number in the session, a dot and a checksum
--
-- Reply: for one item, 1 if the commit was executed.  If the caller does not hold the claim, neither the filter
--        nor the claim changes: the reply is 2 if the filter contains the item, else 0.  For several items, a string
--        with one such character for each, or - if its session has a later call.  The string ends before the first
--        item that the filter has no room for.
--
-- Commands of one,blocks: GETRANGE 1, STRLEN 1, GET 3, GET 2, GETBIT 1, PTTL 3, SETRANGE 3, GETRANGE 1, UNLINK 2,
--                         2 SETRANGE 1, SETRANGE 3

-- include: numbers
-- include: format
-- include: room
-- paste: names

local READS, CHECKS_LENGTH = false, true
local call, key, identity, packed, owners = redis.call, KEYS[1], ARGV[1], ARGV[2], ARGV[3]
-- paste: open
local count = fit and #packed / stride
if not fit or #owners ~= count * 16 or own ~= 1 + count and own ~= 1 + 2 * count then
  -- rare: unfit
end
-- paste: generation
-- paste: prepare
local has_receipts = own > 1 + count
local answers, done, added, is_written, there, new, full = {}, {}, 0, false, false, false, false
for i = 1, count do
  local item, claim, mine = (i - 1) * stride + 1, KEYS[1 + i], generation .. owners:sub(i * 16 - 15, i * 16)
  local receipt, number = has_receipts and KEYS[1 + count + i], ARGV[3 + i]
  local reply, again, is_dropped = nil, false, false
  if receipt then
    local kept = redis.pcall('GET', receipt)
    -- paste: read_receipt
    if answered then
      -- rare: replay
    end
  end
  if not reply and redis.pcall('GET', claim) ~= mine then
    -- rare: denied
  end
  if not reply then
    -- Every command that the server may refuse comes before the first change: those of later items too.
    -- paste: begin
    if count > 1 then
      call('SET', claim, '', 'NX')
    end
    -- paste: probe
  end
  if not reply or again then
    full = false
    -- paste: set
    if not again then
      if full then
        break
      end
      -- paste: before
      reply, done[#done + 1] = 1, i
    end
    if new or COUNTS then
      added = added + 1
    end
    is_written = true
  end
  answers[i] = reply
end
if is_written then
  -- paste: note
end
for j = 1, has_receipts and #done or 0 do  -- `begin` has settled how long the receipts live
  local number, reply = ARGV[3 + done[j]], 1
  -- paste: receipt_text
  call('SETRANGE', KEYS[1 + count + done[j]], 0, text)
end
if #answers == 0 then
  return error_reply(NO_ROOM)
elseif count == 1 then
  return answers[1]
end
for i = 1, #answers do
  answers[i] = type(answers[i]) == 'table' and '-' or answers[i]
end
return table.concat(answers)

-- piece: before
-- Before the first bit of an item: delete its claim, which is gone if the item is set again.
if again then
  call('SETRANGE', key, 0, '')
elseif not is_dropped then
  is_dropped = true
  call('UNLINK', claim)
end

-- piece: denied
-- The caller does not hold the claim.
local held = redis.pcall('GET', claim)
if type(held) == 'table' then
  -- paste: other_type
end
-- paste: test
reply = there and 2 or 0
if receipt then
  -- Without this receipt, delayed copies of the claim and then of this call could still commit the item.
  -- paste: write_receipt
end

-- piece: replay
-- A commit that was executed or refused before, or a delayed copy.
-- include: session
reply = replay(receipt, number)
again = reply == 1 and not COUNTS

-- piece: unfit
-- include: claims
if not fit then
  -- rare: refuse
  return refusal
end
do
  return check_owners(owners, count)
    or error_reply('BLOOMARGUMENT ' .. own - 1 .. ' keys are not the claims of ' .. count .. ' items')
end
