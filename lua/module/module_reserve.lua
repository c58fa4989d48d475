-- Create a filter in a key of the server's module unless the key exists; describe the stored filter.
--
-- KEYS[1]  the filter
-- ARGV[1]  time to live in milliseconds from creation, 0 for none
-- ARGV[2]  random bytes, for the generation of a new filter; '' to create none
-- ARGV[3]  items to test in the stored filter, as MessagePack strings; '' for none
-- ARGV[4]  the number of markers of a new filter (FORMAT.md)
-- ARGV[5]  the number of items for each nibble of its generation
-- ARGV[6]  the encoding of its items in eight hexadecimal digits, '' for none
-- ARGV[i]  an option of BF.INSERT, for every i from 7
--
-- Reply: { the generation of a new filter in hexadecimal digits, '' if none was created; time to live in ms or -1; the
-- reply of BF.INFO; the header of BF.SCANDUMP, '' if the module has no such command; for each item of ARGV[3] a byte, 1
-- or 0 }
--
-- Commands: BF.EXISTS 1, EXISTS 1, BF.INFO 1, BF.SCANDUMP 1, BF.MEXISTS 1, PTTL 1

-- include: decimals
-- include: module_state

local key, ttl, random, questions = KEYS[1], read_number(ARGV[1], 0), ARGV[2], ARGV[3]
local markers, copies, encoding = read_number(ARGV[4], 1), read_number(ARGV[5], 1), ARGV[6]

local unable = module_missing(key)
if unable then
  return unable
elseif not ttl or not random or not questions or random ~= '' and not (markers and copies and encoding) then
  return redis.error_reply('BLOOMARGUMENT the time to live, the random bytes, the questions or numbers are missing')
end
if redis.call('EXISTS', key) == 0 then
  if random == '' then
    return redis.error_reply('BLOOMMISSING there is no such key')
  end
  local options = {}
  for i = 7, #ARGV do
    options[i - 6] = ARGV[i]
  end
  return create_marked(key, new_generation(random), 'made', markers, copies, encoding, options, ttl, questions)
end
return state_of(key, '', questions)
