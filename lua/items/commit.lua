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

-- include: format
-- include: header
-- include: items
-- include: layers or one_layer or module_filter
-- include: receipts
-- include: claims
-- include: add_again

local identity, packed, owners = ARGV[1], ARGV[2], ARGV[3]
local own = #KEYS - extra_keys(identity)
local count = math.max(1, math.floor(#owners / OWNER_BYTES))
local has_receipts = own > 1 + count

local filter, refusal = open_layers(KEYS, identity)
if not filter then
  return refusal
end
local items, malformed
local answers, done, added, is_written = {}, {}, 0, false

-- The reply to the commit of item i; nil if the filter has no room for it.
local function commit(i)
  local claim, owner = KEYS[1 + i], owners:sub((i - 1) * OWNER_BYTES + 1, i * OWNER_BYTES)
  local receipt, number = has_receipts and KEYS[1 + count + i], ARGV[3 + i]
  local replayed = replay(receipt, number)
  if replayed then
    local again = replayed == 1 and add_again(filter, packed, i)
    is_written = is_written or again
    added = added + (again or 0)
    return replayed
  end
  if not items then
    items, malformed = read_layers(filter, packed)
    malformed = malformed or check_owners(owners, items.count)
    if not malformed and own ~= 1 + count and own ~= 1 + 2 * count then
      malformed = redis.error_reply('BLOOMARGUMENT ' .. own - 1 .. ' keys are not the claims of ' .. count .. ' items')
    end
  end
  if malformed then
    return malformed
  elseif value_of(claim) ~= filter.generation .. owner then
    local denial = items.test(i) and 2 or 0
    -- Without this receipt, delayed copies of the claim and then of this call could still commit the item.
    keep(receipt, number, denial, filter.lasting)
    return denial
  end
  local dropped, left = false, nil
  local function drop()
    if not dropped then
      dropped, left = true, filter.marker and redis.call('PTTL', claim)
      redis.call('UNLINK', claim)
    end
  end
  -- Every command that the server may refuse comes before the first change: those of later items too.
  begin(filter, receipt, number, filter.lasting)
  if count > 1 then
    redis.call('SET', claim, '', 'NX')
  end
  if not filter.marker and filter.cell_bits > 1 then
    redis.call('BITFIELD', filter.key, 'GET', 'u4', '#0')
  elseif not filter.marker and not is_blocked(filter) then
    redis.call('SETBIT', claim, 0, redis.call('GETBIT', claim, 0))
  end
  local reply, new = set_items(items, drop, i)
  if #reply == 0 then
    if left and left > 0 then  -- the module has refused the item: restore its claim
      redis.call('SET', claim, filter.generation .. owner, 'PX', left)
    end
    return nil
  end
  added, is_written = added + new, true
  drop()
  done[#done + 1] = i
  return 1
end

for i = 1, count do
  local reply = commit(i)
  if malformed or not reply then
    break
  end
  answers[i] = reply
end
if malformed then
  return malformed
elseif is_written then
  note_written(filter, added)
end
for _, i in ipairs(done) do
  keep(has_receipts and KEYS[1 + count + i], ARGV[3 + i], 1, filter.lasting)
end
if #answers == 0 then
  return redis.error_reply('BLOOMFULL the newest layer has no room for new items')
elseif count == 1 then
  return answers[1]
end
for i, reply in ipairs(answers) do
  answers[i] = type(reply) == 'table' and '-' or reply
end
return table.concat(answers)
