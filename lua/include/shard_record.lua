-- The shard record (FORMAT.md): the key of a sharded filter, which says which generation each shard has.

local SHARD_RECORD_STATE = 88  -- the offset of what is left to do
local SHARD_RECORD_BYTES = 96  -- without the table of generations
