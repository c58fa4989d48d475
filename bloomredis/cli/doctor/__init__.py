"""The command `bloomredis doctor`: rules for what only a server's settings show.

`command` prints the findings, and `rules` derives them from INFO, CONFIG and the stored filter.
"""
