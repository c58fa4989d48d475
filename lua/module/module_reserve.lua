-- Create a filter in a key of the server's module unless the key exists; reply what is stored then.
--
-- KEYS[1]  the filter
-- ARGV[1]  time to live in milliseconds from creation, 0 for none
-- ARGV[2]  its first items, as strings of MessagePack: markers, and what spells them (FORMAT.md); '' if it has to
--          exist
-- ARGV[3]  items to test in what is stored then, as strings of MessagePack; '' for none
-- ARGV[i]  an option of BF.INSERT, for every i from 4
--
-- Reply: { 1 if it was created, else 0; time to live in ms or -1; the reply of BF.INFO; the header of BF.SCANDUMP, or
-- an empty string where the module has no such command; a byte for each item of ARGV[3], 1 or 0 }

-- include: decimals
-- include: module_state

local key, ttl, items, questions = KEYS[1], read_number(ARGV[1], 0), ARGV[2], ARGV[3]

local unable = module_missing(key)
if unable then
  return unable
elseif not ttl or not items or not questions then
  return redis.error_reply('BLOOMARGUMENT the time to live, the items or the questions are missing')
end
local created = 0
if redis.call('EXISTS', key) == 0 then
  if items == '' then
    return redis.error_reply('BLOOMMISSING there is no such key')
  end
  local options = {}
  for i = 4, #ARGV do
    options[i - 3] = ARGV[i]
  end
  local failed = create_filled(key, items, options, ttl)
  if failed then
    return failed
  end
  created = 1
end
return state_of(key, created, questions)
