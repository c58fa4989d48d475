-- Filters and bitmaps of other systems (FORMAT.md).
-- include: num_bits
-- include: numbers
-- include: format
-- include: identity
-- include: memory

-- An error reply unless a hash has the parameters that follow a description.
local function check_config(key, description)
  for field, value in description:sub(BITMAP_BYTES + 1):gmatch('(%w+)=(%w+)\n') do
    local stored = redis.pcall('HGET', key, field)
    if type(stored) == 'table' then
      return stored
    elseif stored ~= value then
      return redis.error_reply('BLOOMCHANGED the config has ' .. field .. ' ' .. (stored or 'missing'))
    end
  end
end

-- A bitmap of another system; in place of a header it has the caller's description.
local function open_bitmap(key, description, keys)
  local changed = #description > BITMAP_BYTES and check_config(keys[#keys], description)
  if changed then
    return nil, changed
  end
  local ttl = unpack_numbers('>I8', description, 25)
  return {
    key = key,
    header = description,
    first_bit = 0,
    cell_bits = 1,
    generation = '',
    ttl = ttl,
    expires = ttl > 0 and (description:byte(10) == 1 or redis.call('EXISTS', key) == 0),
  }
end

-- The filter under a key if it has this identity; else nil and an error reply.  If a description has parameters, the
-- last of all `keys` is the hash of parameters.
local function open_filter(key, identity, keys)
  if (#identity == BITMAP_BYTES or #identity > IDENTITY_BYTES) and identity:sub(1, 7) == 'bitmap\1' then
    return open_bitmap(key, identity, keys)
  end
  local header, refusal = read_known(key, identity)
  if not header then
    return nil, refusal
  end
  return {
    key = key,
    header = header,
    first_bit = HEADER_BYTES * 8,
    cell_bits = cell_bits(header),
    generation = header:sub(41, 48),
  }
end

-- The length of a filter's whole string in bytes.
local function size_of(header)
  return HEADER_BYTES + math.ceil(num_bits_of(header) * cell_bits(header) / 8)
end

-- Whether a filter's bits have not been created: its string is the header alone, with a count of 0.
local function is_unwritten(key, header)
  return header:byte(FLAGS) >= DEFERRED and redis.call('STRLEN', key) == HEADER_BYTES
    and unpack_numbers('>I8', header, IDENTITY_BYTES + 1) == 0
end

-- Create the bits of a filter that has only a header, before a write reads them.
local function make_bits(filter)
  if filter.first_bit > 0 and is_unwritten(filter.key, filter.header) then
    local call, key, header = redis.call, filter.key, filter.header
    -- paste: make_bits
  end
end
