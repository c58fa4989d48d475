-- Extend the leases of claims that the caller still holds; never shorten a lease.
--
-- KEYS[i]          claim i, from 1
-- KEYS[count + 1]  the layer record; absent if the filter has none
-- ARGV[1]          the lease from now on, in milliseconds
-- ARGV[1 + i]      the value of claim i: the filter's generation and the owner
--
-- Reply: a string of one digit a claim: 1; or 0 if another owner or nobody holds the claim
--
-- Commands: GET 1, PTTL 1, PEXPIRE 1

-- include: numbers
-- include: format

local ROTATING = 2

local call, count, lease = redis.call, #ARGV - 1, tonumber(ARGV[1])
local record, is_fit = KEYS[count + 1], count > 0
for i = 1, count do
  is_fit = is_fit and (#ARGV[1 + i] == 16 or #ARGV[1 + i] == 24)
end
if not (is_fit and lease and lease >= 1 and lease < 2 ^ 53 and lease % 1 == 0) then
  -- rare: unfit
end
local answers, header, is_outlived = {}, nil, false
for i = 1, count do  -- the server may refuse to read a key, so all are read before the first change
  local claim, mine = KEYS[i], ARGV[1 + i]
  local held = redis.pcall('GET', claim)
  if type(held) == 'table' then
    -- rare: other_type
  end
  answers[i] = held == mine and 1 or 0
  if answers[i] == 1 and record then
    -- A rotating filter's record must outlive a claim, whose value names the record's generation.
    header = header or redis.pcall('GETRANGE', record, 0, HEADER_BYTES - 1)
    is_outlived = is_outlived or type(header) == 'string' and header:sub(1, 6) == 'bloomr'
      and header:byte(11) == ROTATING and header:sub(41, 48) == mine:sub(1, 8)
  end
end
if is_outlived then
  if record then
    local ttl = call('PTTL', record)
    if ttl >= 0 and ttl < lease then
      call('PEXPIRE', record, lease)
    end
  end
end
for i = 1, count do
  if answers[i] == 1 and call('PTTL', KEYS[i]) < lease then
    call('PEXPIRE', KEYS[i], lease)
  end
end
return table.concat(answers)

-- piece: unfit
-- include: decimals
-- include: claims
for i = 1, math.max(1, count) do
  local malformed = check_value(ARGV[1 + i])
  if malformed then
    return malformed
  end
end
do
  return check_lease(read_number(ARGV[1], 1))
end
