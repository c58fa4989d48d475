-- The creation and description of a filter.
-- include: num_bits
-- include: numbers
-- include: format
-- include: header
-- include: clock
-- include: memory

-- The description of a filter for a client: header in hex, length of the string, time to live in ms.
local function describe(key, header)
  return { hex(header), redis.call('STRLEN', key), redis.call('PTTL', key) }
end

-- An error reply if a header cannot be stored, else nil.
local function check_template(template)
  if #template ~= HEADER_BYTES or template:sub(1, 7) ~= 'bloomr\1' or template:byte(9) < 1
    or template:byte(11) ~= 0 and template:byte(11) ~= COUNTING or num_bits_of(template) < 1
    or num_bits_of(template) * cell_bits(template) > 2 ^ 32 - HEADER_BYTES * 8 then
    return redis.error_reply('BLOOMARGUMENT the header to store is malformed')
  end
end

-- The bytes of a new filter's string: the header alone if the first write creates the bits.
local function new_bytes(template)
  return template:byte(FLAGS) >= DEFERRED and HEADER_BYTES or size_of(template)
end

-- Let the server refuse to create a filter with this header before an older one under the key is deleted.  The string
-- may be longer than it allows (proto-max-bulk-len), which it checks wherever it reads a bit.  These commands change
-- nothing.  Return the policy by which the server may evict the string.
local function probe(key, template, ttl)
  redis.call('SETRANGE', key, 0, '')
  redis.call('GETBIT', key, size_of(template) * 8 - 1)
  return check_memory(new_bytes(template) - redis.call('STRLEN', key), ttl)
end

-- Store a string of zeros that expires after `ttl` ms, or never if `ttl` is 0.  The last byte is written first, so that
-- the server allocates the string once, at its exact size.  The commands before it change nothing, so that the server
-- can refuse them without harm: SETRANGE if the memory is full, which the server checks only at a script's first write,
-- and PEXPIRE if a right is missing.
local function allocate(key, length, ttl)
  redis.call('SETRANGE', key, 0, '')
  if ttl > 0 then
    redis.call('PEXPIRE', key, ttl)
  end
  redis.call('SETRANGE', key, length - 1, '\0')
  if ttl > 0 then
    redis.call('PEXPIRE', key, ttl)
  end
end

-- Store an empty filter with this header, created at `time`, or now by the server's clock.
local function create(key, template, ttl, time)
  local header = template:sub(1, 48) .. pack_numbers('>I8', time or clock()) .. pack_numbers('>I8', 0)
  allocate(key, new_bytes(template), ttl)
  redis.call('SETRANGE', key, 0, header)
  return header
end
