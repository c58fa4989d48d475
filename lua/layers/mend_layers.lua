-- Go on after the loss of layers: begin a generation with the layers that are left, and empty ones for the others.
--
-- KEYS[1]  the layer record
-- KEYS[i]  for every i from 2: a layer that the caller knows, the newest first
-- ARGV[1]  the layer record that the caller knows
-- ARGV[2]  the record to store, with another generation, without the times at which layers began (88 bytes; the script
--          sets its creation time)
-- ARGV[3]  the headers of the layers, 64 bytes each, the newest first (the script sets creation times and counts)
--
-- Reply: { the stored layer record in hex, time to live in ms or -1 }; the record is unchanged if the caller does not
-- know it, or if no layer is missing

-- include: numbers
-- include: format
-- include: header
-- include: clock
-- include: create
-- include: layer_record

local key = KEYS[1]
local known, wanted, templates = ARGV[1], ARGV[2], ARGV[3]

if not templates or #wanted ~= RECORD_BYTES or #known ~= RECORD_BYTES + 8 * (#KEYS - 1)
  or #templates ~= HEADER_BYTES * (#KEYS - 1) then
  return redis.error_reply('BLOOMARGUMENT the layer records or the headers are malformed')
end
local there, refusal = read_record(key)
if not there then
  return refusal
elseif there == '' then
  return (missing(known))
elseif there ~= known then
  return { hex(there), redis.call('PTTL', key) }
end

local time, left = clock(), redis.call('PTTL', key)
local width, slices = slices_of(known)
local grace = width and math.min(60000000, width * slices)
local kept, lost = {}, {}
for i = 2, #KEYS do
  local template, began = templates:sub(HEADER_BYTES * (i - 2) + 1, HEADER_BYTES * (i - 1)), begun(known, i - 2)
  local malformed = check_template(template)
  if malformed or template:sub(41, 48) ~= wanted:sub(41, 48) then
    return malformed or redis.error_reply('BLOOMARGUMENT a header has another generation')
  end
  local over_at = width and (slice_at(began, width, 0) + slices + 1) * width
  local header = read_header(KEYS[i])
  if header and header:sub(1, 40) == template:sub(1, 40)
    and header:sub(41, 56) == known:sub(41, 48) .. pack_numbers('>I8', began) then
    kept[#kept + 1] = KEYS[i]
  elseif not width or over_at > time then
    local lasting = width and math.ceil((over_at + grace - time) / 1000) or math.max(0, left)
    lost[#lost + 1] = { key = KEYS[i], template = template, lasting = lasting, began = began }
  end
end
if #lost == 0 then
  return { hex(there), left }
end

-- These writes change no data: if the server refuses the call, it refuses them before the others.
local bytes = 0
for _, layer in ipairs(lost) do
  probe(key, layer.template, layer.lasting)  -- as if its string were that of the record: the layer's may be a list
  bytes = bytes + new_bytes(layer.template)
end
check_memory(bytes, lost[1].lasting)
for _, layer in ipairs(lost) do
  redis.call('UNLINK', layer.key)
  create(layer.key, layer.template, layer.lasting, layer.began)
end
for _, layer in ipairs(kept) do
  redis.call('SETRANGE', layer, 40, wanted:sub(41, 48))
end
redis.call('SETRANGE', key, 0, wanted:sub(1, 48) .. pack_numbers('>I8', time) .. wanted:sub(57))
return { hex(read_record(key)), left }
