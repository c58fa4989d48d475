-- Create a filter in a key of the server's module unless the key exists; reply what is stored then.
--
-- KEYS[1]      the filter
-- ARGV[1]      time to live in milliseconds from creation, 0 for none
-- ARGV[2]      its first items, as strings of MessagePack: markers, and what spells them (FORMAT.md); '' if it has to
--              exist
-- ARGV[i + 2]  option i of BF.INSERT, for every i from 1
--
-- Reply: { 1 if it was created, else 0; time to live in ms or -1; the reply of BF.INFO; the header of BF.SCANDUMP, or an
-- empty string where the module has no such command }

-- include: numbers
-- include: module_state

local key, ttl, items = KEYS[1], read_number(ARGV[1], 0), ARGV[2]

local unable = module_missing(key)
if unable then
  return unable
elseif not ttl or not items then
  return redis.error_reply('BLOOMARGUMENT the time to live or the items are missing')
end
local created = 0
if redis.call('EXISTS', key) == 0 then
  if items == '' then
    return redis.error_reply('BLOOMMISSING there is no such key')
  end
  local options = {}
  for i = 3, #ARGV do
    options[i - 2] = ARGV[i]
  end
  local failed = create_filled(key, items, options, ttl)
  if failed then
    return failed
  end
  created = 1
end
return state_of(key, created)
