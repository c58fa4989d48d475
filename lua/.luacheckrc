-- The Lua of a Redis server, for `make lint`, which checks each script with its includes.
std = 'lua51'
read_globals = { 'redis', 'cmsgpack', 'KEYS', 'ARGV' }
max_line_length = 120
ignore = { '431' }  -- the locals of the fast path stand before functions whose parameters have the same names
