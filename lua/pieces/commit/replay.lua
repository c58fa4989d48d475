-- A commit that was executed or refused before, or a delayed copy.
-- include: session
reply = replay(receipt, number)
again = reply == 1 and not COUNTS
