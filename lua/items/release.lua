-- Release claims that the caller still holds.
--
-- KEYS[i]  claim i, from 1
-- ARGV[i]  the value of claim i: the filter's generation and the owner
--
-- Reply: a string of one digit a claim: 1; or 0 if another owner or nobody holds the claim

-- include: format
-- include: claims

local answers = {}
for i = 1, math.max(1, #ARGV) do  -- the server may refuse to read a key, so all are read before the first change
  local malformed = check_value(ARGV[i])
  if malformed then
    return malformed
  end
  answers[i] = redis.call('GET', KEYS[i]) == ARGV[i] and 1 or 0
end
for i = 1, #ARGV do
  if answers[i] == 1 then
    -- This value stops a delayed copy of the claim.
    redis.call('SET', KEYS[i], ARGV[i] .. RELEASED, 'PX', RECEIPT_MS)
  end
end
return table.concat(answers)
