-- Try commands as this user, by running each.
--
-- KEYS[1]  the filter, in place of the word FILTER
-- KEYS[2]  an auxiliary key of it, in place of the word BESIDE
-- ARGV[i]  command i, its words separated by blanks; it must not change any state of the keys
--
-- Reply: the error of each command, or an empty string

local errors = {}
for i = 1, #ARGV do
  local words = {}
  for word in ARGV[i]:gmatch('%S+') do
    words[#words + 1] = word == 'FILTER' and KEYS[1] or word == 'BESIDE' and KEYS[2] or word
  end
  local reply = redis.pcall(unpack(words))
  errors[i] = type(reply) == 'table' and reply.err or ''
end
return errors
