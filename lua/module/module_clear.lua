-- Empty a filter in a key of the server's module: a new generation with the same parameters and the same expiry time.
-- It is made under another name first, so that nothing is lost where that is refused.
--
-- KEYS[1]  the filter
-- KEYS[2]  a free name for the new one
-- ARGV[1]  the markers of the filter that the caller knows, as strings of MessagePack
-- ARGV[2]  the markers of the new one
-- ARGV[3]  its first items: its markers, and what spells them (FORMAT.md)
-- ARGV[i]  an option of BF.INSERT, for every i from 4
--
-- Reply: that of module_reserve

-- include: module_markers
-- include: module_state

local key, made, markers, new_markers, items = KEYS[1], KEYS[2], ARGV[1], ARGV[2], ARGV[3]

if not check_markers(key, new_markers) then
  return state_of(key, 1, '')  -- the call was sent again, and has been executed
end
local refusal = check_markers(key, markers)
if refusal then
  return refusal
end
local options = {}
for i = 4, #ARGV do
  options[i - 3] = ARGV[i]
end
if redis.call('EXISTS', made) == 1 then
  redis.call('UNLINK', made)
end
local left = redis.call('PTTL', key)
local failed = create_filled(made, items, options, left < 0 and 0 or math.max(1, left))
if failed then
  return failed
end
local renamed = redis.pcall('RENAME', made, key)
if renamed.err then
  redis.call('UNLINK', made)
  return renamed
end
return state_of(key, 1, '')
