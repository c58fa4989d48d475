-- The number of bits, or counters, in a header or a description.  It has four bytes, since those before it have another
-- meaning (the items' encoding); 0 stands for 2^32.

-- include: numbers

local function num_bits_of(header)
  return (unpack_numbers('>I4', header, 21) - 1) % 2 ^ 32 + 1
end
