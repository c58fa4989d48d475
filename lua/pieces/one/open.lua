-- Open a filter of one string.
local first_bit = HEADER_BYTES * 8
local header, own, lasting = redis.pcall('GETRANGE', key, 0, HEADER_BYTES - 1), #KEYS, nil
local fit = type(header) == 'string' and #header == HEADER_BYTES and header:sub(1, IDENTITY_BYTES) == identity
local room, ended, has_ended, is_over = nil, nil, nil, nil
local unwritten, stride, item_bytes = false, nil, nil
-- paste: check
