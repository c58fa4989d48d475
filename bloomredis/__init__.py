"""Atomic Bloom filters on any Redis or Valkey, without a server module."""

from bloomredis.bits.encoding import keyed
from bloomredis.drivers.claims import Claim
from bloomredis.drivers.kinds import (
    BloomFilter,
    CountingBloomFilter,
    RotatingBloomFilter,
    ScalingBloomFilter,
    ShardedBloomFilter,
)
from bloomredis.drivers.observing import instrument
from bloomredis.drivers.once import Skipped
from bloomredis.errors import (
    BatchInterruptedError,
    BloomError,
    ClaimLostError,
    ClaimUncheckedError,
    ConnectionFailedError,
    FilterFullError,
    FilterLostError,
    FilterMismatchError,
    FilterNotFoundError,
    OutcomeUnknownError,
    ServerRefusedError,
)
from bloomredis.operations.events import CallEvent
from bloomredis.operations.whole.info import FilterInfo
from bloomredis.operations.whole.plans import FilterPlan, plan
from bloomredis.operations.whole.snapshot import LocalFilter

__all__ = [
    "BatchInterruptedError",
    "BloomError",
    "BloomFilter",
    "CallEvent",
    "Claim",
    "ClaimLostError",
    "ClaimUncheckedError",
    "ConnectionFailedError",
    "CountingBloomFilter",
    "FilterFullError",
    "FilterInfo",
    "FilterLostError",
    "FilterMismatchError",
    "FilterNotFoundError",
    "FilterPlan",
    "LocalFilter",
    "OutcomeUnknownError",
    "RotatingBloomFilter",
    "ScalingBloomFilter",
    "ServerRefusedError",
    "ShardedBloomFilter",
    "Skipped",
    "instrument",
    "keyed",
    "plan",
]


def __getattr__(name: str) -> str:
    """Return `__version__`: looked up on access, not on import, since the lookup reads files."""
    if name == "__version__":
        from importlib.metadata import version  # noqa: PLC0415 - imported on access, too

        return version("bloomredis")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    """Return the public names and the dunders, without the submodules."""
    return [*__all__, "__version__", *(name for name in globals() if name.startswith("__"))]
