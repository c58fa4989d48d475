-- The size of the blocks in the layout with this `code`, and the formats of their words, alone and packed behind the
-- number of a block.  Needs format, and the local code.
local is_large = code == BLOCKED
local block_bytes, entry_bytes = is_large and 32 or 16, is_large and 36 or 20
local words = is_large and '<i4i4i4i4i4i4i4i4' or '<i4i4i4i4'
local packed_words = is_large and '<I4i4i4i4i4i4i4i4i4' or '<I4i4i4i4i4'
