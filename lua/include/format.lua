-- The bytes of filters (FORMAT.md), and the lifetime of receipts.

local error_reply = redis.error_reply  -- its short name, for scripts that pipelines send along

local RECEIPT_MS = 600000
local LASTING_MS = 595000  -- what a receipt has to last; clients count on 590 s
local BEGUN = ':-;'        -- the end of a receipt whose call has no reply yet
local GONE_ON = 'BLOOMLANE the lane has gone on since this call'

local HEADER_BYTES = 64
local IDENTITY_BYTES = 56
local SHARDED = 3   -- the kind of a shard record
local COUNTING = 4  -- the kind of a filter that counts
local BLOCKED, SMALL_BLOCKS = 2, 3  -- the codes of the blocked layout, with blocks of 256 and of 128 bits
