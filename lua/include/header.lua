-- The header of a filter (FORMAT.md): read it, compare it.  Needs numbers.lua.
-- Error replies begin with the word that bloomredis/protocol.py knows them by.

local HEADER_BYTES = 64
local IDENTITY_BYTES = 56

local function hex(bytes)
  return (bytes:gsub('.', function(c) return string.format('%02x', c:byte()) end))
end

-- The header under a key, or nil and the error reply that says why there is none.
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

-- The header under a key if it is the one the caller expects, or nil and an error reply.
local function check_identity(key, identity)
  local header, refusal = read_header(key)
  if not header then
    return nil, refusal
  elseif #identity ~= IDENTITY_BYTES then
    return nil, redis.error_reply('BLOOMARGUMENT the identity has ' .. #identity .. ' bytes, not ' .. IDENTITY_BYTES)
  elseif header:sub(1, IDENTITY_BYTES) ~= identity then
    return nil, redis.error_reply('BLOOMCHANGED ' .. hex(header))
  end
  return header
end
