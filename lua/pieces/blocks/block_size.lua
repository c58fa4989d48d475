-- The size of the blocks in the layout with this `code`, and the formats of their words, alone and packed after the
-- block's number.  Needs format and the local code.
local entry_bytes = code == BLOCKED and 36 or 20
local is_large, block_bytes = code == BLOCKED, entry_bytes - 4
local words = is_large and '<i4i4i4i4i4i4i4i4' or '<i4i4i4i4'
local packed_words = is_large and '<I4i4i4i4i4i4i4i4i4' or '<I4i4i4i4i4'
