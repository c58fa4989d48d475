"""The command `bloomredis doctor`, which gathers facts about a server, then checks them without I/O.

`command` prints the findings, `facts` and `rights` ask the server, and the table in `checkup` has the checks.
"""
