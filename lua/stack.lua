-- Say what stack is stored, without changing it.
--
-- KEYS[1]  the root of the stack
--
-- Reply: { root in hex, time to live in ms or -1 }

-- include: numbers
-- include: format
-- include: header
-- include: stack

local key = KEYS[1]

local root, refusal = read_root(key)
if not root then
  return refusal
elseif root == '' then
  return redis.error_reply('BLOOMMISSING there is no such key')
elseif #root < ROOT_BYTES or root:byte(11) == 0 then
  return redis.error_reply('BLOOMFOREIGN the key is not the root of a stack')
end
return { hex(root), redis.call('PTTL', key) }
