"""The command `bloomredis doctor`, which gathers facts about a server, then checks them without I/O.

`command` prints the findings, `facts` asks the server, and the table in `checkup` has the checks.
"""
