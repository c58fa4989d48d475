-- The shard record (FORMAT.md): the key of a sharded filter, with the times at which its parts were created.

local SHARD_RECORD_STATE = 88  -- the offset of the state, which has two bytes
local SHARD_RECORD_IN_USE, SHARD_RECORD_DELETED = '\0\0', '\0\2'
local SHARD_RECORD_BYTES = 96  -- the length without the table
