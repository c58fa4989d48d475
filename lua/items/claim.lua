-- Claim each item of a batch, unless the filter contains it or another owner holds it.
--
-- KEYS[1]      the filter, or the newest of its layers (further keys come last: FORMAT.md)
-- KEYS[i + 1]  the claim of item i, from 1
-- ARGV[1]      the identity of the filter that the caller knows (56 bytes)
-- ARGV[2]      the packed items, one after another: bit offsets or blocks (FORMAT.md)
-- ARGV[3]      the lease of the claims, in milliseconds
-- ARGV[4]      the owners, 16 bytes an item; a retry sends the same owners
-- ARGV[5]      the owners to replace, 16 bytes an item; absent if the call replaces none
--
-- Reply: a string of one character an item: c (claimed), d (done, in the filter), b (busy); then, for each busy item
--        in order, a space and the milliseconds that its lease has left.  If the same holder has made that claim, an
--        equals sign and the last 8 bytes of its owner follow, in hexadecimal.
--
-- A claim takes nothing from an earlier claim of its holder by itself, and a replacement takes nothing but the claim
-- that it names.  So a delayed copy of either changes nothing, and no order of the clients' clocks is needed.

-- include: decimals
-- include: layers or one_layer or module_filter
-- include: claims

local identity, packed, lease, owners = ARGV[1], ARGV[2], read_number(ARGV[3], 1), ARGV[4]
local replaced = ARGV[5]
local own = #KEYS - extra_keys(identity)

local filter, refusal = open_layers(KEYS, identity)
if not filter then
  return refusal
end
local items, unreadable = read_layers(filter, packed)
local malformed = unreadable or check_lease(lease) or check_owners(owners, items.count)
  or replaced and check_owners(replaced, items.count)
if malformed then
  return malformed
elseif own ~= items.count + 1 then
  return redis.error_reply('BLOOMARGUMENT ' .. own - 1 .. ' keys are not the claims of ' .. items.count .. ' items')
end

-- The value of a claim on item i, given the owners of all items.
local function value_for(i, given)
  return filter.generation .. given:sub((i - 1) * OWNER_BYTES + 1, i * OWNER_BYTES)
end

-- Whether the caller may claim an item with this value, if the key of its claim holds another one or is missing.
local function is_free(i, mine, held)
  if replaced then
    return held == value_for(i, replaced)
  elseif not held then
    return true
  end
  local outlived = #held == #mine and held:sub(1, #filter.generation) ~= filter.generation
  return outlived or #held == #mine + #RELEASED and held ~= mine .. RELEASED
end

if filter.record then
  outlast(filter.record, lease)
end
local done, answers, left = {}, {}, {}
for i = 1, items.count do
  done[i] = items.test(i)  -- the server may refuse to read a bit, so all are read before the first claim
end
for i = 1, items.count do
  local claim = KEYS[i + 1]
  local mine = value_for(i, owners)
  if done[i] then
    answers[i] = 'd'
  else
    local held, lasts = value_of(claim), redis.call('PTTL', claim)
    if held == mine or is_free(i, mine, held) then
      -- A delayed copy of a call must not shorten the lease.
      if held ~= mine or lasts < lease then
        redis.call('SET', claim, mine, 'PX', lease)
      end
      answers[i] = 'c'
    else
      answers[i] = 'b'
      left[#left + 1] = ' ' .. math.max(0, lasts) .. (held and end_of_own(mine, held) or '')
    end
  end
end
return table.concat(answers) .. table.concat(left)
