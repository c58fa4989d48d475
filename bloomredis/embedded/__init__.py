"""`connect()` and `connect_asyncio()`, which return a client for a URL and start its server if needed.

This package uses redis-py and knows nothing about filters.
"""

from bloomredis.embedded.connecting import connect, connect_asyncio

__all__ = ["connect", "connect_asyncio"]
