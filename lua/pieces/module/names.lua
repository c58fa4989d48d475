-- include: module_markers
local BAD_ITEMS = 'BLOOMARGUMENT the packed items are malformed'
local COUNTS = true  -- an item is not added again for a commit that was executed before
