-- The markers of a filter in a key of the server's module (FORMAT.md): items that only one generation has.

local MARKER_PREFIX_BYTES = 7

-- The error reply for a key that lacks a marker.
local function markerless(key)
  if redis.call('EXISTS', key) == 0 then
    return redis.error_reply('BLOOMMISSING there is no such key')
  end
  local about = redis.pcall('BF.INFO', key)
  if about.err then
    return about
  end
  return redis.error_reply('BLOOMCHANGED the filter has other markers')
end

-- An error reply unless a filter has all of the packed markers, else nil.
local function check_markers(key, markers)
  if markers == '' then
    return redis.error_reply('BLOOMFULL it has no room for markers, so its items can only be tested')
  end
  local there = redis.pcall('BF.MEXISTS', key, cmsgpack.unpack(markers))
  if there.err then
    return there
  end
  for i = 1, #there do
    if there[i] ~= 1 then
      return markerless(key)
    end
  end
end

-- Whether a filter with this reply of BF.INFO takes `count` new items: it grows, or has room for them.
local function has_room(about, count)
  for i = 1, #about, 2 do
    local name = about[i].ok or about[i]  -- some server versions send a status reply
    if name == 'Expansion rate' and about[i + 1] then
      return true
    end
  end
  return about[8] + count <= about[2]
end

-- The error reply for an item that the module refused: BLOOMFULL if the filter has no room for it.
local function refused(reply)
  for _, phrase in ipairs({ 'filter is full', 'inserting into', 'exceed' }) do
    if reply.err:find(phrase, 1, true) then
      return redis.error_reply('BLOOMFULL the module said: ' .. reply.err)
    end
  end
  return reply
end
