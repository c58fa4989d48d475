-- The size of a packed block in the layout with this `code`: its number and mask.  Needs format, and the local code.
local entry_bytes = code == BLOCKED and 36 or 20
