-- Reply 1 if all bits at the offsets ARGV of the bitmap KEYS[1] are set, else 0.

for i = 1, #ARGV do
  if redis.call('GETBIT', KEYS[1], ARGV[i]) == 0 then
    return 0
  end
end
return 1
