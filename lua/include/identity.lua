-- The header of a filter, and its comparison with the identity that a caller knows (FORMAT.md).  Each error reply
-- begins with the word that names the error.
-- include: num_bits
-- include: numbers
-- include: format

local function hex(bytes)
  return (bytes:gsub('.', function(c) return string.format('%02x', c:byte()) end))
end

-- The size of a cell in bits: a counter in a counting filter, one bit in any other filter.
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
    return nil, error_reply('BLOOMMISSING there is no such key')
  end
  return nil, error_reply('BLOOMFOREIGN the key holds a string that is no filter')
end

-- The header of the filter that the caller knows; nil and an error reply if the key holds no filter, or another one.
local function read_known(key, identity)
  local header, refusal = read_header(key)
  if not header then
    return nil, refusal
  elseif #identity ~= IDENTITY_BYTES then
    return nil, error_reply('BLOOMARGUMENT the identity has ' .. #identity .. ' bytes, not ' .. IDENTITY_BYTES)
  elseif header:sub(1, IDENTITY_BYTES) ~= identity then
    return nil, error_reply('BLOOMCHANGED ' .. hex(header))
  end
  local length = redis.call('STRLEN', key)
  local cut = header:byte(11) ~= SHARDED and length < HEADER_BYTES + num_bits_of(header) * cell_bits(header) / 8
  if cut and (length > HEADER_BYTES or header:byte(FLAGS) < DEFERRED
    or unpack_numbers('>I8', header, IDENTITY_BYTES + 1) > 0) then
    return nil, error_reply('BLOOMDAMAGED ' .. key)
  end
  return header
end
