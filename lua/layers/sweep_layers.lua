-- Delete the layers of a lost layer record; do nothing if a layer record exists.
--
-- KEYS[1]      the layer record
-- KEYS[i + 1]  a layer, for every i from 1
--
-- Reply: the number of deleted layers
--
-- Commands: EXISTS 1, UNLINK 2 to 256

if #KEYS < 2 then
  return redis.error_reply('BLOOMARGUMENT there is no layer to delete')
elseif redis.call('EXISTS', KEYS[1]) == 1 then
  return 0
end
local swept = 0
for i = 1, #KEYS - 1 do
  swept = swept + redis.call('UNLINK', KEYS[i + 1])
end
return swept
