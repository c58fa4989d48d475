"""Atomic Bloom filters on any Redis or Valkey, without a server module."""

from bloomredis.client import BloomFilter
from bloomredis.errors import (
    BatchInterruptedError,
    BloomError,
    FilterLostError,
    FilterMismatchError,
    FilterNotFoundError,
    OutcomeUnknownError,
    ServerRefusedError,
)
from bloomredis.info import FilterInfo

__all__ = [
    "BatchInterruptedError",
    "BloomError",
    "BloomFilter",
    "FilterInfo",
    "FilterLostError",
    "FilterMismatchError",
    "FilterNotFoundError",
    "OutcomeUnknownError",
    "ServerRefusedError",
]
