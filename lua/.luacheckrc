-- The Lua of a Redis server, for `make lint`, which checks each script with its includes.
std = 'lua51'
read_globals = { 'redis', 'cmsgpack', 'KEYS', 'ARGV' }
max_line_length = false  -- pieces are indented; a test limits the lines of the files
ignore = { '421', '423', '431', '542' }  -- a layer's key and sizes shadow the newest layer's; parameters shadow a script's locals
