"""The command `bloomredis doctor`: rules for what only a server's settings show, and a trial of all calls.

`command` prints the findings, `rules` derives some from INFO and CONFIG, and `trials` runs each verb.
"""
