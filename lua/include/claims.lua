-- Claims: a key for each item that a worker holds.  The value is the filter's generation, so that a claim does not
-- outlive the filter that it was made on, and the owner; the key expires with the lease.  An owner is its holder (8
-- bytes; random for one without a name), the time of the claim (6), and random bytes (2).
-- include: numbers

local OWNER_BYTES = 16
local TIME_BYTES, RANDOM_BYTES = 6, 2
local RELEASED = '-'  -- the end of the value of a claim that was given back: its item is free
local GENERATION_BYTES = 8

-- The value under the key of a claim, false if there is none; one of another type is nobody's value, and left alone.
local function value_of(claim)
  local value = redis.pcall('GET', claim)
  if type(value) == 'table' and not tostring(value.err):find('WRONGTYPE') then
    return redis.call('GET', claim)  -- is refused, and says why
  end
  return value
end

-- The generation and the holder in the value of a claim, and the time at which it was made.
local function parts_of(value)
  local last = #value - TIME_BYTES - RANDOM_BYTES
  return value:sub(1, last), read_u64('\0\0' .. value:sub(last + 1, last + TIME_BYTES), 1)
end

-- Whether a claim takes the place of another one: of the same holder, and not made later, as it was to a late copy.
local function succeeds(value, other)
  if #value ~= #other then
    return false
  end
  local holder, made = parts_of(value)
  local held_by, before = parts_of(other)
  return holder == held_by and made >= before
end

-- Let the record of a rotating filter outlive a claim, whose value names its generation.
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

-- An error reply unless there is an owner for each item of a batch.
local function check_owners(owners, items)
  if #owners ~= items * OWNER_BYTES then
    return redis.error_reply('BLOOMARGUMENT ' .. #owners .. ' bytes are not the owners of ' .. items .. ' items')
  end
end

-- An error reply if the value that the caller's claim should have is malformed.  Bitmaps have no generation.
local function check_value(value)
  if not value or #value ~= OWNER_BYTES and #value ~= GENERATION_BYTES + OWNER_BYTES then
    return redis.error_reply('BLOOMARGUMENT the value of a claim is a generation and an owner')
  end
end
