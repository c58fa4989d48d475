local generation = identity:sub(41, 48)
