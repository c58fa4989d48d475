"""One script call and its reply.

LAW: nothing here knows a filter or a client, and nothing does I/O: steps go out, replies come in.
"""
