-- The number of new items that the filter takes before it has its capacity; only capped callers ask for it.
room = room or unpack_numbers('>I8', header, 25) - unpack_numbers('>I8', header, IDENTITY_BYTES + 1)
