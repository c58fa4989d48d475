-- Compute the `start` and `stop` of a block for GETRANGE.  Needs block_size, format and the locals block, first_byte.
local start = first_byte + block * block_bytes
local stop = start + block_bytes - 1
if FORMATS then
  start, stop = string.format('%d', start), string.format('%d', stop)
end
