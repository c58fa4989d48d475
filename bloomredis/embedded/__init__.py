"""Clients of a server that a URL names: in this process, private to it, or outside."""

from bloomredis.embedded.connecting import connect

__all__ = ["connect"]
