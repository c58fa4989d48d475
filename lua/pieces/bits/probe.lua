call('SETBIT', claim, 0, call('GETBIT', claim, 0))
