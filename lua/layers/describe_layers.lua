-- Describe the stored layers; change nothing.
--
-- KEYS[1]  the layer record
--
-- Reply: { the layer record in hex, or the first bytes of a filter of another kind, time to live in ms or -1 }
--
-- Commands: GETRANGE 1, PTTL 1

-- include: header
-- include: layer_record

local key = KEYS[1]

local record, refusal = read_record(key)
if not record then
  return refusal
elseif record == '' then
  return redis.error_reply('BLOOMMISSING there is no such key')
end
return { hex(record), redis.call('PTTL', key) }
