-- include: offsets
local IN_BLOCKS, COUNTS, CELL_BITS, BAD_ITEMS = false, false, 1, BAD_OFFSETS
local EARLY = false  -- the server may refuse SETBIT
