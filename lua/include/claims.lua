-- Claims: a key of its own for each item that a worker holds.  Its value is the filter's generation, so
-- that no claim outlives what it was made on, and the owner's name; it expires with the lease.

local OWNER_BYTES = 16
local GENERATION_BYTES = 8

-- The error reply for a lease that is none, nil for a good one.
local function check_lease(lease)
  if not lease then
    return redis.error_reply('BLOOMARGUMENT the lease is no number of milliseconds above 0')
  end
end

-- The same for the owners of a batch.
local function check_owners(owners, items)
  if #owners ~= items * OWNER_BYTES then
    return redis.error_reply('BLOOMARGUMENT ' .. #owners .. ' bytes are not the owners of ' .. items .. ' items')
  end
end

-- The same for what the caller takes for the value of its claim; a bitmap has no generation.
local function check_value(value)
  if not value or #value ~= OWNER_BYTES and #value ~= GENERATION_BYTES + OWNER_BYTES then
    return redis.error_reply('BLOOMARGUMENT the value of a claim is a generation and an owner')
  end
end
