-- Begin a layer: the next layer of a filter, or the first layer of a new or emptied filter.
--
-- KEYS[1]      the layer record
-- KEYS[2]      the layer to begin
-- KEYS[3]      the newest layer that the caller knows, absent if it knows none
-- KEYS[i + 2]  for every i from 2: the other layers that the caller knows, the newest first; then layers that may
--              remain of earlier generations.  If the filter is new or emptied, all are deleted
-- ARGV[1]      the layer record that the caller knows, empty if it knows none
-- ARGV[2]      the layer record to store, without the times at which layers began (88 bytes); if its generation is
--              not the known one, the filter is emptied, or created if it has vanished
-- ARGV[3]      the header of the layer (64 bytes; the script sets creation time and count)
-- ARGV[4]      time to live of a new filter in milliseconds, 0 for none
--
-- Reply: { the stored layer record in hex, time to live in ms or -1 }; the record is unchanged if the caller does not
-- know it, or if no further layer is needed.  If the layer is large and the server may evict it, its policy comes last
--
-- Commands: GETRANGE 1, TIME, GETRANGE 3, PTTL 1, SETRANGE 1, GETBIT 1, STRLEN 1, SET 1, UNLINK 2, 3 SETRANGE 2, SET 1,
--           PTTL 1

-- include: decimals
-- include: numbers
-- include: format
-- include: header
-- include: clock
-- include: create
-- include: layer_record

local key, layer, newest_known = KEYS[1], KEYS[2], KEYS[3]
local known, wanted, template, ttl = ARGV[1], ARGV[2], ARGV[3], read_number(ARGV[4], 0)

local malformed = check_template(template)
if malformed then
  return malformed
elseif not known or not ttl or #wanted ~= RECORD_BYTES or wanted:sub(1, 6) ~= 'bloomr'
  or wanted:sub(41, 48) ~= template:sub(41, 48) or #known > 0 and (#known <= RECORD_BYTES or #known % 8 > 0)
  or #KEYS < 2 + math.max(0, #known - RECORD_BYTES) / 8 then
  return redis.error_reply('BLOOMARGUMENT the layer record or the time to live is malformed')
end
local there, refusal = read_record(key)
if not there then
  return refusal
end
local function state(record)
  return { hex(record), redis.call('PTTL', key) }
end
if there ~= known and there ~= '' then
  return state(there)
end
local grows = known:sub(41, 48) == wanted:sub(41, 48)
local time, times = clock(), ''
local width, slices = slices_of(wanted)
if grows then
  if there == '' then
    return (missing(known))
  end
  local current, past = slice_at(time, width or math.huge, slices or 0)
  local newest = width and slice_at(begun(there, 0), width, slices)
  if not width or newest > past then
    local header = read_header(newest_known)
    if not header then
      return redis.error_reply('BLOOMDAMAGED ' .. newest_known)
    elseif (not width or newest >= current)
      and unpack_numbers('>I8', header, 25) > unpack_numbers('>I8', header, IDENTITY_BYTES + 1) then
      return state(there)
    end
  end
  times = there:sub(RECORD_BYTES + 1)
  while width and times ~= '' and slice_at(unpack_numbers('>I8', times, 1), width, slices) <= past do
    times = times:sub(9)
  end
  if #times >= MAX_LAYERS * 8 then
    return redis.error_reply('BLOOMFULL it has ' .. MAX_LAYERS
      .. ' layers, which are the most possible; make it for a larger capacity')
  end
end

local left = redis.call('PTTL', key)
local expires = there == '' and ttl or left < 0 and 0 or math.max(1, left)
local lasting = expires
if width then
  local past_from = (slice_at(time, width, slices) + slices + 1) * width
  local grace = math.min(60000000, width * slices)  -- in case the clock is set back a little
  lasting = math.ceil((past_from + grace - time) / 1000)
end
-- These writes change no data: if the server refuses the call, it refuses them before the others.
local policy = probe(key, template, lasting)
if lasting > 0 then
  redis.call('PEXPIRE', key, math.max(lasting, expires))
end
redis.call('SET', key, there, 'XX', 'KEEPTTL')

redis.call('UNLINK', layer)
for i = 1, grows and 0 or #KEYS - 2 do
  redis.call('UNLINK', KEYS[i + 2])
end
local header = create(layer, template, lasting, time)
local record = wanted .. times .. header:sub(49, 56)
redis.call('SET', key, record)
if lasting > 0 then
  redis.call('PEXPIRE', key, math.max(lasting, expires))
end
local reply = state(record)
reply[3] = policy
return reply
