"""The simulation of filters of many keys: growing, rotating and sharded ones.

Calls are recorded as in `tests.history`, with times of the simulated servers' clock. Losses are read from
the servers' data, and the rules of `tests.rules` judge a schedule at its end.
"""
