-- The format of filters (FORMAT.md), and the lifetime of receipts.

local error_reply = redis.error_reply  -- a short name, since some scripts are sent as a whole

local RECEIPT_MS = 600000
local LASTING_MS = 595000  -- the least lifetime of a receipt; clients rely on 590 s
local BEGUN = ':-;'        -- the end of a receipt whose call has no reply yet
local GONE_ON = 'BLOOMLANE the session has gone on since this call'

local HEADER_BYTES = 64
local IDENTITY_BYTES = 56
local BITMAP_BYTES = 32  -- the description of a bitmap of another system
local SHARDED = 3   -- the kind of a shard record
local COUNTING = 4  -- the kind of a counting filter
local FLAGS = 13    -- the header's byte of flags, counted from 1
local DEFERRED = 4  -- the flag of a filter whose bits the first write creates
local PART_MADE = 8  -- the flag of a part of a sharded filter that still has a time to live of its own, a minute
local BLOCKED, SMALL_BLOCKS = 2, 3  -- the codes of the blocked layout, with blocks of 256 and 128 bits
