-- Claims: a key for each item that a worker holds.  The key expires with the lease.  Its value is the filter's
-- generation, so that a claim does not outlive its filter, and the owner.  An owner consists of the holder (8 bytes;
-- random for a holder without a name), and 8 bytes that differ for each claim.

local OWNER_BYTES, HOLDER_BYTES = 16, 8
local RELEASED = '-'  -- the end of the value of a released claim, whose item is free
local GENERATION_BYTES = 8

-- An equals sign and the end of the held owner in hexadecimal, if it is the same holder's; else an empty string.
local function end_of_own(value, held)
  local shared = #value - OWNER_BYTES + HOLDER_BYTES
  if #held ~= #value or held:sub(1, shared) ~= value:sub(1, shared) then
    return ''
  end
  return '=' .. ('%02x'):rep(OWNER_BYTES - HOLDER_BYTES):format(held:byte(shared + 1, -1))
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
