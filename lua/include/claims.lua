-- Claims: a key for each item that a worker holds.  The key expires with the lease.  Its value is the filter's
-- generation, so that a claim does not outlive its filter, and the owner.  An owner consists of the holder (8 bytes;
-- random for a holder without a name), the time of the claim (6 bytes), and random bytes (2).
-- include: numbers

local OWNER_BYTES = 16
local TIME_BYTES, RANDOM_BYTES = 6, 2
local RELEASED = '-'  -- the end of the value of a released claim, whose item is free
local GENERATION_BYTES = 8

-- The value of a claim's key, false if the key is missing; an error reply, which equals no value, for another type.
local function value_of(claim)
  local value = redis.pcall('GET', claim)
  if type(value) == 'table' and not tostring(value.err):find('WRONGTYPE') then
    return redis.call('GET', claim)  -- raises the server's error
  end
  return value
end

-- The generation and holder in the value of a claim, as one string, and the time of the claim.
local function parts_of(value)
  local last = #value - TIME_BYTES - RANDOM_BYTES
  return value:sub(1, last), read_u64('\0\0' .. value:sub(last + 1, last + TIME_BYTES), 1)
end

-- Whether a claim may replace `other`: only a claim of the same holder that is not later, so that a delayed copy
-- replaces nothing.
local function succeeds(value, other)
  if #value ~= #other then
    return false
  end
  local holder, made = parts_of(value)
  local held_by, before = parts_of(other)
  return holder == held_by and made >= before
end

-- Let the record of a rotating filter outlive a claim, since the claim's value names the record's generation.
local function outlast(record, lease)
  local left = redis.call('PTTL', record)
  if left >= 0 and left < lease then
    redis.call('PEXPIRE', record, lease)
  end
end

-- An error reply if a lease is malformed, else nil.
local function check_lease(lease)
  if not lease then
    return redis.error_reply('BLOOMARGUMENT the lease must be a number of milliseconds above 0')
  end
end

-- An error reply unless each item of a batch has an owner, else nil.
local function check_owners(owners, items)
  if #owners ~= items * OWNER_BYTES then
    return redis.error_reply('BLOOMARGUMENT ' .. #owners .. ' bytes are not the owners of ' .. items .. ' items')
  end
end

-- An error reply if the expected value of a claim is malformed, else nil.  A bitmap's claim has no generation.
local function check_value(value)
  if not value or #value ~= OWNER_BYTES and #value ~= GENERATION_BYTES + OWNER_BYTES then
    return redis.error_reply('BLOOMARGUMENT the value of a claim is a generation and an owner')
  end
end
