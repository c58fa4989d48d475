-- A filter of one string: a `BloomFilter`, a counting filter, a shard.

-- piece: open
-- Open a filter of one string.
local first_bit = HEADER_BYTES * 8
local header, own, lasting = redis.pcall('GETRANGE', key, 0, HEADER_BYTES - 1), #KEYS, nil
local fit = type(header) == 'string' and #header == HEADER_BYTES and header:sub(1, IDENTITY_BYTES) == identity
local room, ended, has_ended, is_over = nil, nil, nil, nil
local unwritten, stride, item_bytes = false, nil, nil
-- paste: check

-- piece: refuse
-- include: identity
local refusal = select(2, read_known(key, identity)) or error_reply(BAD_ITEMS)

-- piece: generation
local generation = identity:sub(41, 48)

-- piece: prepare
if unwritten then
  -- rare: first_write
  unwritten = false
end

-- piece: find_room
-- The number of new items that the filter takes before it has its capacity; only capped callers ask for it.
room = room or unpack_numbers('>I8', header, 25) - unpack_numbers('>I8', header, IDENTITY_BYTES + 1)
