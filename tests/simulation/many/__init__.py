"""The simulation of filters of many keys: those that grow, those that forget, and those in shards.

Calls are recorded as `tests.history` records them, with times of the simulated servers' clock.  Losses are
read off the servers' data, and the rules of `tests.history` judge a schedule when it is over.
"""
