local generation = marker:sub(MARKER_PREFIX_BYTES + 1, MARKER_PREFIX_BYTES + 8)
