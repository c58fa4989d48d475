-- Lower bound for a script with ARGV[1] probes: as many SETBITs of the bitmap KEYS[1], without any logic.

for i = 1, ARGV[1] do
  redis.call('SETBIT', KEYS[1], 7919 * i, '1')
end
return 1
