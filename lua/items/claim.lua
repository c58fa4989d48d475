-- Claim each item of a batch, unless the filter contains it or another owner holds it.
--
-- KEYS[1]      the filter, or the newest of its layers (further keys come last: FORMAT.md)
-- KEYS[i + 1]  the claim of item i, from 1
-- ARGV[1]      the identity of the filter that the caller knows (56 bytes)
-- ARGV[2]      the packed items, one after another: bit offsets or blocks (FORMAT.md)
-- ARGV[3]      the lease of the claims, in milliseconds
-- ARGV[4]      the owners, 16 bytes an item; a retry sends the same owners
-- ARGV[5]      the owners to replace, 16 bytes an item; absent or empty if the call replaces none
-- ARGV[6]      the number of claims that the batch of this call has made before; absent if a filter with a capacity has
--              room for each claim that finds it not full
--
-- Reply: a string of one character an item: c (claimed), d (done, in the filter), b (busy); then, for each busy item
--        in order, a space and the milliseconds that its lease has left.  If the same holder has made that claim, an
--        equals sign and the last 8 bytes of its owner follow, in hexadecimal.  The string ends before the first item
--        that a capped filter has no room for.
--
-- A claim takes nothing from an earlier claim of its holder by itself, and a replacement takes nothing but the claim
-- that it names.  So a delayed copy of either changes nothing, and no order of the clients' clocks is needed.
--
-- Commands of one,blocks: GETRANGE 1, STRLEN 1, GETRANGE 1, GET 2, SET 2

-- include: numbers
-- include: format
-- paste: names

local READS, CHECKS_LENGTH = false, true
local call, key, identity, packed, lease = redis.call, KEYS[1], ARGV[1], ARGV[2], tonumber(ARGV[3])
local owners, replaced = ARGV[4], ARGV[5] ~= '' and ARGV[5]
-- paste: open
local count = fit and #packed / stride
if not fit or not (lease and lease >= 1 and lease < 2 ^ 53 and lease % 1 == 0) or #owners ~= count * 16
  or replaced and #replaced ~= #owners or own ~= count + 1 then
  -- rare: unfit
end
-- paste: generation
local answers, left, there = {}, '', false
for i = 1, count do  -- the server may refuse to read a bit, so all are read before the first claim
  local item = (i - 1) * stride + 1
  -- paste: test
  answers[i] = there and 'd'
end
-- paste: outlast
for i = 1, count do
  if not answers[i] then
    local claim, mine = KEYS[i + 1], generation .. owners:sub(i * 16 - 15, i * 16)
    local held, lasts, is_busy = redis.pcall('GET', claim), 0, false
    if held or count > 1 then  -- of several, the first shows that the server lets PTTL pass
      lasts = call('PTTL', claim)
    end
    if held ~= mine and (held or replaced) then
      -- rare: held
    end
    -- paste: admit
    if not is_busy and (held ~= mine or lasts < lease) then  -- a delayed copy of a call must not shorten the lease
      call('SET', claim, mine, 'PX', lease)
    end
    answers[i] = is_busy and 'b' or 'c'
  end
end
return table.concat(answers, '', 1, count) .. left

-- piece: held
-- The key of the claim has the value `held`, or is missing though a claim is to be replaced.  Sets `is_busy` unless
-- the caller may claim the item.
-- include: claims
if type(held) == 'table' then
  -- paste: other_type
end
if replaced then
  is_busy = held ~= generation .. replaced:sub(i * OWNER_BYTES - OWNER_BYTES + 1, i * OWNER_BYTES)
else
  local outlived = #held == #mine and held:sub(1, #generation) ~= generation
  is_busy = not outlived and (#held ~= #mine + #RELEASED or held == mine .. RELEASED)
end
if is_busy then
  left = left .. ' ' .. math.max(0, lasts) .. (held and end_of_own(mine, held) or '')
end

-- piece: unfit
-- include: decimals
-- include: claims
if not fit then
  -- rare: refuse
  return refusal
end
do
  return check_lease(read_number(ARGV[3], 1)) or check_owners(owners, count)
    or replaced and check_owners(replaced, count)
    or error_reply('BLOOMARGUMENT ' .. own - 1 .. ' keys are not the claims of ' .. count .. ' items')
end
