-- The refusal of new items.

local NO_ROOM = 'BLOOMFULL there is no room for new items'
