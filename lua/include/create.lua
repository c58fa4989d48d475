-- Make a filter, and say what one is.  Needs numbers.lua and header.lua.

-- What a client needs to know of a filter: its header in hex, its length, its time to live in ms.
local function describe(key, header)
  return { hex(header), redis.call('STRLEN', key), redis.call('PTTL', key) }
end

-- The error reply for a template of a header that cannot be stored, nil for a good one.
local function check_template(template)
  if #template ~= HEADER_BYTES or template:sub(1, 7) ~= 'bloomr\1' or template:byte(9) < 1
    or template:byte(11) ~= 0 and template:byte(11) ~= COUNTING or read_u64(template, 17) < 1
    or read_u64(template, 17) * cell_bits(template) > 2 ^ 32 - HEADER_BYTES * 8 then
    return redis.error_reply('BLOOMARGUMENT the header to store is malformed')
  end
end

-- Store an empty filter made from a template of its header; the server's clock dates it.
-- The last byte is written first, so that the server allocates the string once and exactly.
local function create(key, template, ttl)
  local now = redis.call('TIME')
  local header = template:sub(1, 48) .. write_u64(now[1] * 1000000 + now[2]) .. write_u64(0)
  redis.call('SETRANGE', key, HEADER_BYTES + math.ceil(read_u64(template, 17) * cell_bits(template) / 8) - 1, '\0')
  redis.call('SETRANGE', key, 0, header)
  if ttl > 0 then
    redis.call('PEXPIRE', key, ttl)
  end
  return header
end
