"""The command `bloomredis doctor`: facts about a server are gathered, then checked without I/O.

`command` prints, `facts` and `rights` ask the server, the modules that `checkup` lists judge the answers.
"""
