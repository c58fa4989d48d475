-- The creation and description of a filter in a key of the server's module.
-- include: module_marks
-- include: memory

-- An error reply if the server lacks the module, or its scripts lack cmsgpack, else nil.
local function module_missing(key)
  local reply = rawget(_G, 'cmsgpack') and redis.pcall('BF.EXISTS', key, '')
  if not reply or type(reply) == 'table' and reply.err:find('nknown', 1, true) then
    return redis.error_reply('BLOOMMODULE there are no commands BF.*')
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

-- Store a filter with its marks, which expires after `ttl` ms, or never if `ttl` is 0; return its description.  If a
-- command is refused, delete the filter and return the error reply.  The module takes 1 / ln 2 bits of an item for each
-- halving of the error rate, and its first bitmap has half the rate.
local function create_marked(key, generation, kind, markers, copies, encoding, options, ttl, questions)
  local entries, rate = tonumber(options[2]) or 0, tonumber(options[4]) or 1
  check_memory(entries * math.log(2 / rate) / math.log(2) ^ 2 / 8, ttl)
  options[#options + 1] = 'ITEMS'
  append_marks(options, generation, kind, markers, copies, encoding)
  local made = redis.pcall('BF.INSERT', key, unpack(options))
  if made.err then
    return made
  end
  local _, state = pcall(function()
    if ttl > 0 then
      redis.call('PEXPIRE', key, ttl)
    end
    return state_of(key, generation, questions)
  end)
  state = type(state) == 'table' and state or redis.error_reply(state)  -- before 7.0 an error is a string
  if state.err then
    redis.call('UNLINK', key)
  end
  return state
end
