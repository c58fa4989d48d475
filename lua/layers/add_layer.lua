-- Begin a layer: the next one, or the first one of a filter that is new or emptied.
--
-- KEYS[1]      the layer record
-- KEYS[2]      the layer to begin
-- KEYS[3]      the newest layer so far, absent if there is none
-- KEYS[i + 3]  the other layers, for every i from 1
-- ARGV[1]      the layer record that the caller knows, empty if there is none
-- ARGV[2]      the layer record to store, without the times at which layers were begun (88 bytes); if its
--              generation is not the one known, the filter is emptied
-- ARGV[3]      the header of the layer (64 bytes; the script sets creation time and count)
-- ARGV[4]      time to live of a new filter in milliseconds, 0 for none
--
-- Reply: { layer record in hex, time to live in ms or -1 }; unchanged if it is not the one that the caller
-- knows, or if no other layer is needed

-- include: numbers
-- include: format
-- include: header
-- include: create
-- include: layer_record

local key, layer, known, wanted, template, ttl = KEYS[1], KEYS[2], ARGV[1], ARGV[2], ARGV[3], read_number(ARGV[4], 0)

local malformed = check_template(template)
if malformed then
  return malformed
elseif not known or not ttl or #wanted ~= RECORD_BYTES or wanted:sub(1, 6) ~= 'bloomr'
  or wanted:sub(41, 48) ~= template:sub(41, 48) or #KEYS ~= 2 + math.max(0, #known - RECORD_BYTES) / 8 then
  return redis.error_reply('BLOOMARGUMENT the layer record or the time to live is malformed')
end
local there, refusal = read_record(key)
if not there then
  return refusal
end
local function state(record)
  return { hex(record), redis.call('PTTL', key) }
end
local width, slices = slices_of(wanted)
if there ~= known and (there ~= '' or not width) then
  return state(there)
end
local times, expires = '', redis.call('PTTL', key)
if there == '' then
  expires = ttl
elseif there:sub(41, 48) == wanted:sub(41, 48) then
  local current, past = slice_at(now(), width or math.huge, slices or 0)
  local newest = width and slice_at(begun(there, 0), width, slices)
  if not width or newest > past then
    local header, missing = read_header(KEYS[3])
    if not header then
      return missing
    elseif (not width or newest >= current) and read_u64(header, 25) > read_u64(header, IDENTITY_BYTES + 1) then
      return state(there)
    end
  end
  times = there:sub(RECORD_BYTES + 1)
  while width and times ~= '' and slice_at(read_u64(times, 1), width, slices) <= past do
    times = times:sub(9)
  end
else
  redis.call('UNLINK', KEYS[3])
  for i = 1, #KEYS - 3 do
    redis.call('UNLINK', KEYS[i + 3])
  end
end

redis.call('UNLINK', layer)  -- a layer that outlived its layer record has no owner
local header = create(layer, template, 0)
local record = wanted .. times .. header:sub(49, 56)
redis.call('SET', key, record)
if width then
  local past_from = (slice_at(read_u64(header, 49), width, slices) + slices + 1) * width
  redis.call('PEXPIREAT', key, math.ceil(past_from / 1000))
  redis.call('PEXPIREAT', layer, math.ceil(past_from / 1000))
elseif expires > 0 then
  redis.call('PEXPIRE', key, expires)
  redis.call('PEXPIRE', layer, expires)
end
return state(record)
