-- The size of a packed block, number and mask, in the layout with this `code`.  Needs format and the local code.
local entry_bytes = code == BLOCKED and 36 or 20
