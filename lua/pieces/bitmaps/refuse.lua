-- include: chain
local refusal = cursor and own >= 1 and check_cursor(KEYS[own + 1], cursor)
  or error_reply(header and BAD_ITEMS or 'BLOOMARGUMENT the layers and the keys do not match')
