-- Release claims that the caller still holds.
--
-- KEYS[i]  claim i, from 1
-- ARGV[i]  the value of claim i: the filter's generation and the owner
--
-- Reply: a string of one digit a claim: 1; or 0 if another owner or nobody holds the claim
--
-- Commands: GET 1, SET 1

-- include: format
-- include: claims

local call, answers = redis.call, {}
for i = 1, math.max(1, #ARGV) do  -- the server may refuse to read a key, so all are read before the first change
  local malformed = check_value(ARGV[i])
  if malformed then
    return malformed
  end
  local claim = KEYS[i]
  local held = redis.pcall('GET', claim)
  if type(held) == 'table' then
    -- rare: other_type
  end
  answers[i] = held == ARGV[i] and 1 or 0
end
for i = 1, #ARGV do
  if answers[i] == 1 then
    -- This value stops a delayed copy of the claim.
    call('SET', KEYS[i], ARGV[i] .. RELEASED, 'PX', RECEIPT_MS)
  end
end
return table.concat(answers)
