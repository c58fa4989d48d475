-- include: memory
check_memory(HEADER_BYTES + math.ceil(num_bits_of(header) / 8), 0)
-- paste: make_bits
