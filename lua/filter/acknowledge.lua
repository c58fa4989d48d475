-- Mark a filter as acknowledged: objects that have reported the loss of an older one may go on with it (FORMAT.md).
--
-- KEYS[1]  the filter, or its record
-- ARGV[1]  the identity that the caller has just read (56 bytes), without the mark
--
-- Reply: 1
--
-- Commands: GETRANGE 1, SETRANGE 1

-- include: header

local ACKNOWLEDGED = 1  -- the flag of a filter that was made on purpose after a loss
local key, identity = KEYS[1], ARGV[1]

local header, refusal = read_header(key)
if not header then
  return refusal
elseif not identity or #identity ~= IDENTITY_BYTES or identity:byte(FLAGS) % 2 == 1 then
  return redis.error_reply('BLOOMARGUMENT the identity to mark is malformed')
end
local flags = string.char(identity:byte(FLAGS) + ACKNOWLEDGED)
local marked = identity:sub(1, FLAGS - 1) .. flags .. identity:sub(FLAGS + 1)
if header:sub(1, IDENTITY_BYTES) == identity then
  redis.call('SETRANGE', key, FLAGS - 1, flags)
elseif header:sub(1, IDENTITY_BYTES) ~= marked then
  return redis.error_reply('BLOOMCHANGED ' .. hex(header))
end
return 1
