-- Make a filter the first layer of a growing filter, which takes the filter's name.
--
-- KEYS[1]  the filter; afterwards the layer record
-- KEYS[2]  the key of the first layer
-- ARGV[1]  the identity of the filter that the caller knows (56 bytes)
-- ARGV[2]  the layer record to store, without the times at which layers began (88 bytes)
-- ARGV[3]  the header of the layer (64 bytes; the script keeps the filter's creation time and count)
--
-- Reply: { layer record in hex, time to live in ms or -1 }
--
-- Commands: 2 GETRANGE 1, STRLEN 1, PTTL 1, SETRANGE 1, SETRANGE 2, SET 1, PEXPIRE 1, RENAME 1, SETRANGE 2, SET 1,
--           PEXPIRE 1, PTTL 1

-- include: numbers
-- include: format
-- include: header
-- include: create
-- include: layer_record

local key, layer = KEYS[1], KEYS[2]
local identity, wanted, template = ARGV[1], ARGV[2], ARGV[3]

local malformed = check_template(template)
if malformed then
  return malformed
elseif #wanted ~= RECORD_BYTES or wanted:sub(41, 48) ~= template:sub(41, 48) then
  return redis.error_reply('BLOOMARGUMENT the layer record is malformed')
end
local there = read_header(key)
if there and there:sub(41, 48) == wanted:sub(41, 48) then
  return { hex(read_record(key)), redis.call('PTTL', key) }  -- this is a retry of a call that was executed
end
local filter, refusal = open_filter(key, identity)
if not filter then
  return refusal
elseif filter.header:byte(11) ~= 0 or filter.header:sub(8, 12) ~= template:sub(8, 12)
  or filter.header:sub(17, 32) ~= template:sub(17, 32) then
  return redis.error_reply('BLOOMARGUMENT the layer is not as large as the filter, or that is no plain one')
end
local left = redis.call('PTTL', key)
-- These writes change nothing: if the memory is full or a right is missing, the server refuses them before the others.
redis.call('SETRANGE', key, 0, '')
redis.call('SETRANGE', layer, 0, '')
redis.call('SET', key, '', 'NX')
if left >= 0 then
  left = math.max(1, left)
  redis.call('PEXPIRE', key, left)
end
redis.call('RENAME', key, layer)
redis.call('SETRANGE', layer, 0, template:sub(1, 48) .. filter.header:sub(49))
local record = wanted .. filter.header:sub(49, 56)
redis.call('SET', key, record)
if left >= 0 then
  redis.call('PEXPIRE', key, left)
end
return { hex(record), redis.call('PTTL', key) }
