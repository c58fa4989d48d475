-- include: identity
local refusal = select(2, read_known(key, identity)) or error_reply(BAD_ITEMS)
