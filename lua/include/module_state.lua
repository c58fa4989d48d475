-- The creation and description of a filter in a key of the server's module.
-- include: module_marks

-- An error reply if the server lacks the module, or its scripts lack cmsgpack, else nil.
local function module_missing(key)
  local reply = rawget(_G, 'cmsgpack') and redis.pcall('BF.EXISTS', key, '')
  if not reply or type(reply) == 'table' and reply.err:find('nknown', 1, true) then
    return redis.error_reply('BLOOMMODULE there are no commands BF.*')
  end
end

-- Store a filter with its marks, which expires after `ttl` ms, or never if `ttl` is 0.  If a command is refused, delete
-- the filter and return the error reply.
local function create_marked(key, generation, kind, markers, copies, encoding, options, ttl)
  options[#options + 1] = 'ITEMS'
  append_marks(options, generation, kind, markers, copies, encoding)
  local made = redis.pcall('BF.INSERT', key, unpack(options))
  if made.err then
    return made
  end
  local expires = ttl > 0 and redis.pcall('PEXPIRE', key, ttl)
  if type(expires) == 'table' then
    redis.call('UNLINK', key)
    return expires
  end
end

-- The description of a filter for a client; `created` is its generation if this call created it, else ''.
local function state_of(key, created, questions)
  local about = redis.pcall('BF.INFO', key)
  if about.err then
    return about
  end
  local dump = redis.pcall('BF.SCANDUMP', key, 0)
  if dump.err and not dump.err:find('nknown', 1, true) then
    return dump
  end
  local answers = questions ~= '' and redis.call('BF.MEXISTS', key, cmsgpack.unpack(questions)) or {}
  local digits = created:gsub('.', function(byte)
    return ('%02x'):format(byte:byte())
  end)
  return { digits, redis.call('PTTL', key), about, dump[2] or '', string.char(unpack(answers)) }
end
