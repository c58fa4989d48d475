-- Describe the stored layers; change nothing.
--
-- KEYS[1]  the layer record
--
-- Reply: { layer record in hex, time to live in ms or -1 }

-- include: header
-- include: layer_record

local key = KEYS[1]

local record, refusal = read_record(key)
if not record then
  return refusal
elseif record == '' then
  return redis.error_reply('BLOOMMISSING there is no such key')
elseif #record < RECORD_BYTES or record:byte(11) == 0 then
  return redis.error_reply('BLOOMFOREIGN the key holds no layer record')
end
return { hex(record), redis.call('PTTL', key) }
