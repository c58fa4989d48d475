-- include: header
local refusal = select(2, open_filter(key, identity, KEYS)) or error_reply(BAD_ITEMS)
