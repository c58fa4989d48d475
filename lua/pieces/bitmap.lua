-- A bitmap of another system.

-- piece: open
-- Open a bitmap of another system, which has a description in place of a header.  A write renews its time to live `ttl`
-- if it `expires`.
local first_bit, header, own, lasting, unwritten = 0, identity, #KEYS, nil, false
local room, ended, has_ended, is_over
local ttl, expires, stride, item_bytes = 0, false, nil, nil
local fit = (#identity == BITMAP_BYTES or #identity > IDENTITY_BYTES) and identity:sub(1, 7) == 'bitmap\1'
if #identity > IDENTITY_BYTES then  -- the last key is a hash of parameters
  own = own - 1
  for field, value in identity:sub(BITMAP_BYTES + 1):gmatch('(%w+)=(%w+)\n') do
    fit = fit and redis.pcall('HGET', KEYS[#KEYS], field) == value
  end
end
if fit then
  ttl = unpack_numbers('>I8', identity, 25)
  expires = ttl > 0 and (identity:byte(10) == 1 or call('EXISTS', key) == 0)
  stride = identity:byte(9) * 4
  item_bytes = stride
end
-- paste: check_bitmap

-- piece: refuse
-- include: header
local refusal = select(2, open_filter(key, identity, KEYS)) or error_reply(BAD_ITEMS)

-- piece: generation
local generation = ''

-- piece: note
-- paste: renew

-- piece: renew
if expires then
  call('PEXPIRE', key, ttl)
end
