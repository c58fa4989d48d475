local refusal = check_markers(key, identity)
