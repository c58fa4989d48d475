"""The command `bloomredis demo`: worker processes race over one stream of clicks.

`command` sets the race up and prints its result; `race` runs the workers and counts the clicks.
"""
