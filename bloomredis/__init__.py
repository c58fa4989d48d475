"""Atomic Bloom filters on any Redis or Valkey, without a server module.

::

    from bloomredis import BloomFilter, connect

    seen = BloomFilter(connect("redis://localhost"), "seen", capacity=1_000_000, error_rate=0.001)
    seen.add("a")  # True: nobody had it
    seen.add_many(["a", "b"])  # [False, True]
    "a" in seen  # True

`bloomredis.asyncio` has the same classes, whose calls are awaited.  `claim` and `once` are for work that must
be done once, though workers may die.  `dir(bloomredis)` lists all names.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from bloomredis.later import imported  # names are imported when they are first used

if TYPE_CHECKING:
    from bloomredis import compat as compat
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
    from bloomredis.embedded.connecting import connect
    from bloomredis.errors import (
        BatchInterruptedError,
        BloomError,
        ClaimLostError,
        ClaimUncheckedError,
        ConnectionFailedError,
        FilterExistsError,
        FilterFullError,
        FilterLostError,
        FilterMismatchError,
        FilterNotFoundError,
        OutcomeUnknownError,
        ServerRefusedError,
    )
    from bloomredis.operations.codec import WorkItem
    from bloomredis.operations.events import CallEvent
    from bloomredis.operations.whole.info import FilterInfo
    from bloomredis.operations.whole.plans import FilterPlan, plan
    from bloomredis.operations.whole.snapshot import LocalFilter

__version__ = "0.1.0"

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
    "FilterExistsError",
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
    "WorkItem",
    "connect",
    "instrument",
    "keyed",
    "plan",
]

_HOMES = {
    "CallEvent": "operations.events",
    "Claim": "drivers.claims",
    "FilterInfo": "operations.whole.info",
    "FilterPlan": "operations.whole.plans",
    "LocalFilter": "operations.whole.snapshot",
    "Skipped": "drivers.once",
    "connect": "embedded.connecting",
    "WorkItem": "operations.codec",
    "instrument": "drivers.observing",
    "keyed": "bits.encoding",
    "plan": "operations.whole.plans",
}
"""The modules of the names; all others are errors or kinds of filters."""

if not TYPE_CHECKING:  # type checkers would accept any name

    def __getattr__(name: str) -> Any:
        """Import the module of a public name, and return what has the name."""
        if name == "compat":
            return imported("bloomredis.compat")
        if name not in __all__:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        home = _HOMES.get(name, "errors" if name.endswith("Error") else "drivers.kinds")
        found = globals()[name] = getattr(imported(f"bloomredis.{home}"), name)
        return found


def __dir__() -> list[str]:
    """Return the public names and the dunders, without the submodules except `compat`."""
    return [*__all__, "compat", *(name for name in globals() if name.startswith("__"))]
