-- include: module_markers
local COUNTS = true  -- an item is not added again for a commit that was executed before
