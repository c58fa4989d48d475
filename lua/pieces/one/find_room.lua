-- The number of new items that the filter takes before it has its capacity; only capped callers ask for it.
room = room or read_u64(header, 25) - read_u64(header, IDENTITY_BYTES + 1)
