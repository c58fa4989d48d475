-- The reply for a string of one character an item: an integer for a single item, since it may stand in
-- a caller's own pipeline, and the string for more.
local function answer(characters)
  return #characters == 1 and tonumber(characters) or characters
end
