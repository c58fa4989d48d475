there = known[i] == 1
