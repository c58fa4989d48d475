-- Begin to rebuild a filter: create its successor, an empty filter to which all later items are added as well.
--
-- KEYS[1]  the filter
-- KEYS[2]  the successor
-- ARGV[1]  the identity of the filter that the caller knows (56 bytes)
-- ARGV[2]  the header of the successor (64 bytes; the script sets creation time and count)
-- ARGV[3]  milliseconds until the successor expires
-- ARGV[4]  1 to replace another successor, 0 to refuse
-- ARGV[5]  the tags of successors to replace in any case, three bytes each
--
-- Reply: { header of the filter in hex, header of the successor in hex }; a retry gets the same reply

-- include: decimals
-- include: numbers
-- include: create
-- include: rebuilding

local key, successor_key, identity, template = KEYS[1], KEYS[2], ARGV[1], ARGV[2]
local ttl, takes_over, left = read_number(ARGV[3], 1), ARGV[4] == '1', ARGV[5] or ''

local function has_tag(tags, successor)
  for first = 1, #tags, TAG_BYTES do
    if tags:sub(first, first + TAG_BYTES - 1) == successor:sub(TAG_AT + 1, TAG_AT + TAG_BYTES) then
      return true
    end
  end
  return false
end

local malformed = check_template(template)
if malformed then
  return malformed
elseif not ttl then
  return redis.error_reply('BLOOMARGUMENT the time to live must be a number of milliseconds')
end
local header, refusal = read_header(key)
if not header then
  return refusal
end
local other = is_being_rebuilt(header) and read_successor(successor_key, header)
if other and other:sub(1, 48) == template:sub(1, 48) then
  return { hex(header), hex(other) }  -- this is a retry of a call that was executed
end
local filter, changed = open_filter(key, identity)
if not filter then
  return changed
elseif other and not takes_over and not has_tag(left, other) then
  return redis.error_reply('BLOOMREBUILDING it is being rebuilt already')
elseif generation_of(template) ~= filter.generation then
  return redis.error_reply('BLOOMARGUMENT the successor has another generation')
end

-- These writes change nothing: the server refuses them if it would refuse the last write or the end of the rebuild.
redis.call('SETRANGE', key, 0, '')
redis.call('RENAME', key, key)
make_bits(filter)
redis.call('PERSIST', successor_key)
redis.call('UNLINK', successor_key)
-- The successor must be dated later than the filter, even if the clock was set back.
local successor = create(successor_key, template, ttl, math.max(clock(), read_u64(header, 49) + 1))
if not is_being_rebuilt(header) then
  mark(key, header, BEING_REBUILT)
  header = read_header(key)
end
return { hex(header), hex(successor) }
