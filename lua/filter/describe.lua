-- Describe the stored filter; change nothing.
--
-- KEYS[1]  the filter
--
-- Reply: { header in hex, length of the string, time to live in ms or -1 }
--
-- Commands: GETRANGE 1, STRLEN 1, PTTL 1

-- include: header
-- include: create

local header, refusal = read_header(KEYS[1])
if not header then
  return refusal
end
return describe(KEYS[1], header)
