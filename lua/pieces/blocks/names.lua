-- include: words
local IN_BLOCKS, COUNTS, CELL_BITS, BAD_ITEMS = true, false, 1, BAD_BLOCKS
local EARLY = true  -- a server that allows SETRANGE allows all writes
