-- Filters that are being rebuilt: byte 12 of the header says so (FORMAT.md).
-- include: format
-- include: header

local STATE_AT = 12       -- the byte of the header, counted from 0
local BEING_REBUILT = 1   -- its lowest bit
local TAG_AT = 13         -- the first byte of what tells rebuilds apart
local TAG_BYTES = 3

local function is_being_rebuilt(header)
  return header:byte(STATE_AT + 1) % 2 == BEING_REBUILT
end

local function generation_of(header)
  return header:sub(41, 48)
end

-- The header of the successor of a filter with this header; nil if there is none.
local function read_successor(key, header)
  local successor = read_header(key)
  return successor and generation_of(successor) == generation_of(header) and successor or nil
end

-- Add to the byte that says whether a filter is being rebuilt; `tag` takes the place of the bytes after it.
local function mark(key, header, difference, tag)
  redis.call('SETRANGE', key, STATE_AT, string.char(header:byte(STATE_AT + 1) + difference) .. (tag or ''))
end
