-- Set the bits at the offsets ARGV of the bitmap KEYS[1]; reply 1 if one of them was not set, else 0.

local new = 0
for i = 1, #ARGV do
  if redis.call('SETBIT', KEYS[1], ARGV[i], 1) == 0 then
    new = 1
  end
end
return new
