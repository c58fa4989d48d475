-- The reply made of one character an item: an integer for a single item, since the call may be one of a caller's own
-- pipeline, and the string for more.
local function answer(characters)
  return #characters == 1 and characters:byte() % 16 or characters
end
