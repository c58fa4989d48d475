-- Filters and their headers (FORMAT.md).  Each error reply begins with the word that names the error.
-- include: numbers
-- include: format

local function hex(bytes)
  return (bytes:gsub('.', function(c) return string.format('%02x', c:byte()) end))
end

-- The bits of a cell: of a counter in a filter that counts, and one in any other.
local function cell_bits(header)
  return header:byte(11) == COUNTING and 4 or 1
end

-- The header under a key; nil and an error reply if the key holds no filter.
local function read_header(key)
  local header = redis.pcall('GETRANGE', key, 0, HEADER_BYTES - 1)
  if type(header) == 'table' then
    return nil, header
  elseif #header == HEADER_BYTES and header:sub(1, 6) == 'bloomr' then
    return header
  elseif redis.call('EXISTS', key) == 0 then
    return nil, redis.error_reply('BLOOMMISSING there is no such key')
  end
  return nil, redis.error_reply('BLOOMFOREIGN the key holds a string that is no filter')
end

-- An error reply unless a hash has the parameters behind a description.
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

-- A bitmap of another system.  It has no header; the caller's description takes its place.
local function open_bitmap(key, description, keys)
  local changed = #description > BITMAP_BYTES and check_config(keys[#keys], description)
  if changed then
    return nil, changed
  end
  local ttl = read_u64(description, 25)
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

-- The filter under a key if it is the one that the caller knows; else nil and an error reply.  The last of all `keys`
-- is the hash of parameters, if the description has some.
local function open_filter(key, identity, keys)
  if (#identity == BITMAP_BYTES or #identity > IDENTITY_BYTES) and identity:sub(1, 7) == 'bitmap\1' then
    return open_bitmap(key, identity, keys)
  end
  local header, refusal = read_header(key)
  if not header then
    return nil, refusal
  elseif #identity ~= IDENTITY_BYTES then
    return nil, redis.error_reply('BLOOMARGUMENT the identity has ' .. #identity .. ' bytes, not ' .. IDENTITY_BYTES)
  elseif header:sub(1, IDENTITY_BYTES) ~= identity then
    return nil, redis.error_reply('BLOOMCHANGED ' .. hex(header))
  elseif header:byte(11) ~= SHARDED
    and redis.call('STRLEN', key) < HEADER_BYTES + read_u64(header, 17) * cell_bits(header) / 8 then
    return nil, redis.error_reply('BLOOMDAMAGED ' .. key)
  end
  return {
    key = key,
    header = header,
    first_bit = HEADER_BYTES * 8,
    cell_bits = cell_bits(header),
    generation = header:sub(41, 48),
  }
end

-- Add to the item count, or renew the time to live, after items were written; `added` is negative for removals.
local function note_added(filter, added)
  if filter.expires then
    redis.call('PEXPIRE', filter.key, filter.ttl)
  elseif added ~= 0 and not filter.ttl then
    local count = math.max(0, read_u64(filter.header, IDENTITY_BYTES + 1) + added)
    redis.call('SETRANGE', filter.key, IDENTITY_BYTES, write_u64(count))
  end
end
