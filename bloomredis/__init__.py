"""Atomic Bloom filters on any Redis or Valkey, without a server module."""

from bloomredis.client import BloomFilter, Claim, CountingBloomFilter
from bloomredis.errors import (
    BatchInterruptedError,
    BloomError,
    ClaimLostError,
    FilterLostError,
    FilterMismatchError,
    FilterNotFoundError,
    OutcomeUnknownError,
    ServerRefusedError,
)
from bloomredis.info import FilterInfo
from bloomredis.local import LocalFilter

__all__ = [
    "BatchInterruptedError",
    "BloomError",
    "BloomFilter",
    "Claim",
    "ClaimLostError",
    "CountingBloomFilter",
    "FilterInfo",
    "FilterLostError",
    "FilterMismatchError",
    "FilterNotFoundError",
    "LocalFilter",
    "OutcomeUnknownError",
    "ServerRefusedError",
]
