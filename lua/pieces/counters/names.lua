-- include: offsets
local IN_BLOCKS, COUNTS, CELL_BITS, BAD_ITEMS = false, true, 4, BAD_OFFSETS
local EARLY = false  -- the server may refuse BITFIELD
local MOST = 15      -- a counter stays at this value, since the number of items beyond is unknown
