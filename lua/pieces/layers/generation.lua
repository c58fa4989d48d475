local generation = identity:sub(LAYERS_BYTES + 41, LAYERS_BYTES + 48)  -- the record's
