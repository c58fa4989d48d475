-- Empty a filter in a key of the server's module: create a new generation with the same parameters and expiry time.
-- The new filter is first created under another name, so that nothing is lost if the server refuses it.
--
-- KEYS[1]  the filter
-- KEYS[2]  a free name for the new filter
-- ARGV[1]  the markers of the filter that the caller knows, as MessagePack strings
-- ARGV[2]  the markers of the new filter
-- ARGV[3]  the generation of the new filter
-- ARGV[4]  'made' or 'adopted', the same as for the old filter (FORMAT.md)
-- ARGV[5]  the number of markers
-- ARGV[6]  the number of items for each nibble of the generation
-- ARGV[7]  the encoding of the filter's items in eight hexadecimal digits, '' for none
-- ARGV[i]  an option of BF.INSERT, for every i from 8
--
-- Reply: the same as that of module_reserve
--
-- Commands: BF.MEXISTS 1, EXISTS 1, BF.INFO 1, BF.MEXISTS 1, EXISTS 2, PTTL 1, BF.INSERT 2, PEXPIRE 2, BF.INFO 2,
--           BF.SCANDUMP 2, PTTL 2, RENAME 2

-- include: decimals
-- include: module_markers
-- include: module_state

local key, made, markers, new_markers, generation, kind = KEYS[1], KEYS[2], ARGV[1], ARGV[2], ARGV[3], ARGV[4]
local count, copies, encoding = read_number(ARGV[5], 1), read_number(ARGV[6], 1), ARGV[7]

if not count or not copies or not encoding then
  return redis.error_reply('BLOOMARGUMENT the number of the markers, or of the copies, is missing')
end
if not check_markers(key, new_markers) then
  return state_of(key, generation, '')  -- this is a retry of a call that was executed
end
local refusal = check_markers(key, markers)
if refusal then
  return refusal
end
local options = {}
for i = 8, #ARGV do
  options[i - 7] = ARGV[i]
end
if redis.call('EXISTS', made) == 1 then
  redis.call('UNLINK', made)
end
local left = redis.call('PTTL', key)
local ttl = left < 0 and 0 or math.max(1, left)
local state = create_marked(made, generation, kind, count, copies, encoding, options, ttl, '')
if state.err then
  return state
end
local renamed = redis.pcall('RENAME', made, key)
if renamed.err then
  redis.call('UNLINK', made)
  return renamed
end
return state
