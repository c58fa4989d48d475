local generation = ''
