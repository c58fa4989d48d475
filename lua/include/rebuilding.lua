-- Filters that are being rebuilt, as byte 12 of the header says (FORMAT.md).
-- include: format
-- include: header

local STATE_AT = 12       -- the byte of the header, counted from 0
local BEING_REBUILT = 1   -- the lowest bit of that byte
local TAG_AT = 13         -- the first byte of the tag, which distinguishes rebuilds
local TAG_BYTES = 3

local function is_being_rebuilt(header)
  return header:byte(STATE_AT + 1) % 2 == BEING_REBUILT
end

local function generation_of(header)
  return header:sub(41, 48)
end

-- The header of the successor of a filter with this header; nil if it has none.
local function read_successor(key, header)
  local successor = read_header(key)
  return successor and generation_of(successor) == generation_of(header) and successor or nil
end

-- Add `difference` to the byte that says whether a filter is being rebuilt; replace the bytes after it by `tag`.
local function mark(key, header, difference, tag)
  redis.call('SETRANGE', key, STATE_AT, string.char(header:byte(STATE_AT + 1) + difference) .. (tag or ''))
end
