-- Give a part of a sharded filter the filter's time to live in place of a minute (FORMAT.md).
--
-- KEYS[1]  the part
-- ARGV[1]  the identity of the part that the caller knows (56 bytes), with the flag of a part that is being made
-- ARGV[2]  time to live in milliseconds from now, 0 for none
--
-- Reply: 1
--
-- Commands: GETRANGE 1, STRLEN 1, SETRANGE 1, PEXPIRE 1, SETRANGE 1

-- include: decimals
-- include: header

local key, identity, ttl = KEYS[1], ARGV[1], read_number(ARGV[2], 0)

local part, refusal = open_filter(key, identity)
if not part then
  return refusal
elseif part.first_bit == 0 or part.header:byte(FLAGS) < PART_MADE or not ttl then
  return redis.error_reply('BLOOMARGUMENT it is no part that is being made, or the time to live is malformed')
end
redis.call('SETRANGE', key, 0, '')  -- lets the server refuse the write before the time to live changes
if ttl > 0 then
  redis.call('PEXPIRE', key, ttl)
else
  redis.call('PERSIST', key)
end
redis.call('SETRANGE', key, FLAGS - 1, string.char(part.header:byte(FLAGS) - PART_MADE))
return 1
