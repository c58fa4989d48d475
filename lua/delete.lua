-- Delete a filter.
--
-- KEYS[1]  the filter
-- ARGV[1]  the identity of the filter that the caller knows (56 bytes)
--
-- Reply: 1

-- include: numbers
-- include: header

local header, refusal = check_identity(KEYS[1], ARGV[1])
if not header then
  return refusal
end
return redis.call('UNLINK', KEYS[1])
