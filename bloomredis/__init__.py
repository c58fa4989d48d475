"""Atomic Bloom filters on any Redis or Valkey, without a server module."""

from bloomredis.client import BloomFilter
from bloomredis.errors import BloomError, FilterLostError, FilterMismatchError, FilterNotFoundError
from bloomredis.filter import FilterInfo

__all__ = [
    "BloomError",
    "BloomFilter",
    "FilterInfo",
    "FilterLostError",
    "FilterMismatchError",
    "FilterNotFoundError",
]
