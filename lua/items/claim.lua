-- Claim each item of a batch, unless the filter contains it or another owner holds it.
--
-- KEYS[1]      the filter, or the newest of its layers (further keys come last: FORMAT.md)
-- KEYS[i + 1]  the claim of item i, from 1
-- ARGV[1]      the identity of the filter that the caller knows (56 bytes)
-- ARGV[2]      the packed items, one after another: bit offsets or blocks (FORMAT.md)
-- ARGV[3]      the lease of the claims, in milliseconds
-- ARGV[4]      the owners, 16 bytes an item; a retry sends the same owners
--
-- Reply: a string of one character an item: c (claimed), d (done, in the filter), b (busy); then, for each busy item
--        in order, a space and the milliseconds that its lease has left

-- include: decimals
-- include: layers or one_layer or module_filter
-- include: claims

local identity, packed, lease, owners = ARGV[1], ARGV[2], read_number(ARGV[3], 1), ARGV[4]
local own = #KEYS - extra_keys(identity)

local filter, refusal = open_layers(KEYS, identity)
if not filter then
  return refusal
end
local items, unreadable = read_layers(filter, packed)
local malformed = unreadable or check_lease(lease) or check_owners(owners, items.count)
if malformed then
  return malformed
elseif own ~= items.count + 1 then
  return redis.error_reply('BLOOMARGUMENT ' .. own - 1 .. ' keys are not the claims of ' .. items.count .. ' items')
end

local answers, left = {}, {}
for i = 1, items.count do
  local claim = KEYS[i + 1]
  local mine = filter.generation .. owners:sub((i - 1) * OWNER_BYTES + 1, i * OWNER_BYTES)
  if items.test(i) then
    answers[i] = 'd'
  else
    local held = value_of(claim)
    local outlived = held and #held == #mine and held:sub(1, #filter.generation) ~= filter.generation
    local released = held and #held == #mine + #RELEASED and held ~= mine .. RELEASED
    if held and held ~= mine and not outlived and not released and not succeeds(mine, held) then
      answers[i] = 'b'
      left[#left + 1] = ' ' .. math.max(0, redis.call('PTTL', claim))
    else
      -- A delayed copy of a call must not shorten the lease.
      if held ~= mine or redis.call('PTTL', claim) < lease then
        redis.call('SET', claim, mine, 'PX', lease)
      end
      answers[i] = 'c'
    end
  end
end
if filter.record then
  outlast(filter.record, lease)
end
return table.concat(answers) .. table.concat(left)
