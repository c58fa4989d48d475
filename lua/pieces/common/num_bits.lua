-- The number of bits, or counters, of `header`: four bytes, of which 0 stands for 2^32.
local num_bits = (unpack_numbers('>I4', header, 21) - 1) % 2 ^ 32 + 1
