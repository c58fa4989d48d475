-- The libraries that a server gives to its scripts, over functions of the host program.
--
-- The chunk is called with:  commands  the functions of the host, by verb; each returns its reply, or nil and an error
--                            shapes    'status', 'list' or 'names' for verbs whose reply is neither a number nor a string
--                            sha1hex   the hash of a string, in hex
--                            version   the server's version as one number
-- It returns a function that runs a compiled script with its number of keys, the keys and the arguments.  That
-- returns two values: 'value', 'error', 'status' or 'list', and the value, the text or the table.

local commands, shapes, sha1hex, version = ...
local bit = rawget(_G, 'bit')

local function refused(text)
  return { err = text }
end

local function called(verb, shape, first, ...)
  if first == nil then
    local text = ...
    if text then
      return nil, refused(text)
    end
    return false
  elseif shape == 'status' then
    return { ok = first }
  elseif shape == 'list' then
    return { first, ... }
  elseif shape == 'names' then  -- each is a status reply, with its value behind it
    local list = { first, ... }
    for i = 1, #list, 2 do
      list[i] = { ok = list[i] }
    end
    return list
  end
  return first
end

local function perform(verb, ...)
  local name = commands[verb] and verb or verb:upper()
  local command = commands[name]
  if not command then
    return nil, refused('ERR Unknown Redis command called from script: ' .. verb)
  end
  local gets = name == 'SET' and select(select('#', ...), ...) == 'GET'
  return called(name, gets and 'value' or shapes[name], command(...))
end

redis = { REDIS_VERSION_NUM = version, sha1hex = sha1hex, REPL_ALL = 3, REPL_NONE = 0 }

function redis.call(verb, ...)
  local reply, refusal = perform(verb, ...)
  if refusal then
    error(refusal, 0)
  end
  return reply
end

function redis.pcall(verb, ...)
  local reply, refusal = perform(verb, ...)
  return refusal or reply
end

function redis.error_reply(text)
  return { err = text }
end

function redis.status_reply(text)
  return { ok = text }
end

function redis.set_repl() end

-- The formats that the scripts use: '>I8', '>I4', and '<' with any number of 'I4' and 'i4'.
local function words_of(format)
  local signed = {}
  for sign, size in format:sub(2):gmatch('(%a)(%d)') do
    assert(format:sub(1, 1) == '<' and size == '4', format)
    signed[#signed + 1] = sign == 'i'
  end
  return signed
end

local function read_word(signed, a, b, c, d)
  local word = a + b * 256 + c * 65536 + d * 16777216
  return signed and word >= 2147483648 and word - 4294967296 or word
end

local function read_words(signed, bytes, first)
  local words, count = {}, #signed
  for i = 1, count do
    words[i] = read_word(signed[i], bytes:byte(first, first + 3))
    first = first + 4
  end
  words[count + 1] = first
  return unpack(words, 1, count + 1)
end

local function word_bytes(word)
  word = word % 4294967296
  local low = word % 65536
  local high = (word - low) / 65536
  return string.char(low % 256, (low - low % 256) / 256, high % 256, (high - high % 256) / 256)
end

local known = setmetatable({}, {
  __index = function(self, format)
    self[format] = words_of(format)
    return self[format]
  end,
})

if bit then
  struct = {}

  function struct.unpack(format, bytes, first)
    first = first or 1
    if format == '>I8' then
      local a, b, c, d, e, f, g, h = bytes:byte(first, first + 7)
      if not h then
        error(refused('ERR data string too short'), 0)
      end
      return (((((((a * 256 + b) * 256 + c) * 256 + d) * 256 + e) * 256 + f) * 256 + g) * 256) + h, first + 8
    end
    if format == '>I4' then
      return read_words({ false }, bytes:sub(first, first + 3):reverse(), 1), first + 4
    end
    local signed = known[format]
    if first + #signed * 4 - 1 > #bytes then
      error(refused('ERR data string too short'), 0)
    end
    return read_words(signed, bytes, first)
  end

  function struct.pack(format, ...)
    if format == '>I8' then
      local number = ...
      local low = number % 4294967296
      return word_bytes((number - low) / 4294967296):reverse() .. word_bytes(low):reverse()
    end
    local bytes, words = {}, { ... }
    for i = 1, #known[format] do
      bytes[i] = word_bytes(words[i])
    end
    return table.concat(bytes)
  end
end

-- Strings of MessagePack.
cmsgpack = {}

local function unpacked_one(bytes, first)
  local head = bytes:byte(first)
  local size, from = head - 0xA0, first + 1
  if head == 0xD9 then
    size, from = bytes:byte(first + 1), first + 2
  elseif head == 0xDA then
    local high, low = bytes:byte(first + 1, first + 2)
    size, from = high * 256 + low, first + 3
  elseif head < 0xA0 or head > 0xBF then
    error(refused('ERR Bad data format in input.'), 0)
  end
  if from + size - 1 > #bytes then
    error(refused('ERR Missing bytes in input.'), 0)
  end
  return bytes:sub(from, from + size - 1), from + size
end

-- The offset of what follows, -1 for nothing, and the first string.
function cmsgpack.unpack_one(bytes)
  local item, next_one = unpacked_one(bytes, 1)
  return next_one > #bytes and -1 or next_one - 1, item
end

function cmsgpack.unpack(bytes)
  local items, at = {}, 1
  while at <= #bytes do
    items[#items + 1], at = unpacked_one(bytes, at)
  end
  return unpack(items)
end

-- A script may not make globals of its own.
setmetatable(_G, {
  __newindex = function(_, name)
    error(refused('ERR Script attempted to create global variable ' .. tostring(name)), 0)
  end,
  __index = function(_, name)
    error(refused('ERR Script attempted to access nonexistent global variable ' .. tostring(name)), 0)
  end,
})
rawset(_G, 'KEYS', {})
rawset(_G, 'ARGV', {})

local function finish(ran, reply)
  if not ran then
    return 'error', type(reply) == 'table' and reply.err or 'ERR ' .. tostring(reply)
  elseif type(reply) ~= 'table' then
    return 'value', reply
  elseif reply.err then
    return 'error', reply.err
  elseif reply.ok then
    return 'status', reply.ok
  end
  return 'list', reply
end

return function(script, count, ...)
  local keys, arguments = { ... }, {}
  for i = count + 1, #keys do
    arguments[i - count] = keys[i]
    keys[i] = nil
  end
  KEYS, ARGV = keys, arguments
  return finish(pcall(script))
end
