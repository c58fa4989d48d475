"""Script calls and their replies.

LAW: this package knows neither filters nor clients and does no I/O: it yields steps and receives replies.
"""
