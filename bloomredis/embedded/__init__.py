"""`connect()` and `connect_asyncio()`: a client of the server at a URL, which may be started for it.

This folder stands apart: it knows redis-py, and nothing of filters.
"""

from bloomredis.embedded.connecting import connect, connect_asyncio

__all__ = ["connect", "connect_asyncio"]
