local refusal = check_markers(key, identity) or error_reply(BAD_ITEMS)
