"""Parameters of the public classes: their types, their defaults, their checks.

A typed dictionary describes each parameter once.  Editors show that text where a caller writes the
parameter, and `make generate` copies it into the docstrings of the public classes, for `help()`.  The
operations have the defaults; `DEFAULTS` lists them for the signatures.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, fields
from datetime import timedelta
from typing import TYPE_CHECKING, Any, BinaryIO, Final, Generic, Literal, TypedDict

from bloomredis import arguments
from bloomredis.arguments import OnFull, OnLost
from bloomredis.bits.encoding import Item, number_of
from bloomredis.protocol.calls import Wait
from bloomredis.stored.foreign.bitmap import ForeignLayout
from bloomredis.stored.planning import StorageOptions

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    # The type of the items: `Item` unless `encode` is given.  A filter of `Item` also takes str alone.
    I = TypeVar("I", default=Item, contravariant=True)  # noqa: E741, PLC0105 - a letter
else:
    from typing import TypeVar

    I = TypeVar("I", contravariant=True)  # noqa: E741, PLC0105

Seconds = float | timedelta
File = str | os.PathLike[str] | BinaryIO
"""A path, or an open binary file."""
Progress = Callable[[int, int], object]
"""A function that is called with the number of bytes done so far, and the total."""
OwnLayout = Literal["classic", "blocked"]
AnyLayout = Literal["classic", "blocked", "module"] | ForeignLayout
_MOST_REPLICAS: Final = 1000


class CommonParameters(TypedDict, Generic[I], total=False):
    """Parameters of every class."""

    on_lost: OnLost
    """The reaction to the loss or replacement of the filter that this object has used.  `"raise"` (the
    default) raises `FilterLostError`.  `"recreate"` logs a warning and goes on with the filter stored now, or
    with a new one, which is empty even if only a layer was lost."""
    retry_safe: bool
    """Let a retry return the answer of the first execution, so that a lost reply never turns into "already
    there".  The default is True."""
    encode: Callable[[I], bytes] | None
    """Turns an item into bytes, for items that are not str, bytes or int."""
    min_replicas: int
    """Number of replicas that must have a write before the call returns, by default 0; with fewer it raises
    `OutcomeUnknownError`.  On a cluster these are replicas of the node that has the key."""
    replica_timeout: Seconds
    """Seconds (or a timedelta) to wait for the replicas, by default 1."""


Common = CommonParameters[Any]
"""The same for operations, which take items of any type; only the public classes restrict the type."""


class PlainOptions(CommonParameters[I], total=False):
    """Parameters of `BloomFilter` that are not stored."""

    on_full: OnFull
    """The reaction to a new item in a filter that has `capacity` items, whoever added them.  `"warn"` (the
    default) adds the item; each process logs a warning, and again at each doubling of the error rate, as an
    error from ten times `error_rate` on.  `"raise"` raises `FilterFullError`; a batch stops there, with
    `BatchInterruptedError`, and so does a claim, but never a commit."""
    local_cache: bool | Seconds
    """Keep a copy of the filter in this process (as large as the filter), and trust it for that many seconds
    (or a timedelta) after a call to the server; True means 1, False (the default) no copy.  The copy answers
    for an item whose bits it has; the server answers for any other item.  While the copy is trusted, `add`
    may answer "already there" although the filter was cleared, evicted or lost.  If the server comes back
    with an older state of the filter, the copy still has the items that the server has lost."""


class PlainParameters(PlainOptions[I], total=False):
    """Parameters of `BloomFilter`."""

    capacity: int | None
    """Number of items that the filter is sized for.  With `capacity` and `error_rate`, the first call checks
    a stored filter, and the first add or claim creates a missing one; without them the filter must exist."""
    error_rate: float | None
    """The false-positive rate at `capacity`, strictly between 0 and 1."""
    layout: AnyLayout | None
    """`"blocked"` (faster calls), `"classic"` (up to 14% less memory) or `"module"` (a key of the server's
    own Bloom filter module, which grows by itself).  None takes the stored layout; a new filter is then
    blocked.  Or a layout from `bloomredis.compat`, for a bitmap that another system writes too: such a bitmap
    has no header, so the layout states its size, and its loss cannot be detected."""
    ttl: Seconds | None
    """Seconds (or a timedelta) from creation until the whole filter expires; None for never.  An object that
    lives longer raises `FilterLostError` then: for items that are to be forgotten one by one, use a
    `RotatingBloomFilter`."""


class CountingParameters(CommonParameters[I], total=False):
    """Parameters of `CountingBloomFilter`."""

    capacity: int | None
    """Number of different items that the filter is sized for.  With `capacity` and `error_rate`, the first
    call checks a stored filter, and the first add or claim creates a missing one; without them the filter
    must exist."""
    error_rate: float | None
    """The false-positive rate at `capacity`, strictly between 0 and 1."""
    ttl: Seconds | None
    """Seconds (or a timedelta) from creation until the whole filter expires; None for never.  An object that
    lives longer raises `FilterLostError` then: for items that are to be forgotten one by one, use a
    `RotatingBloomFilter`."""


class ScalingParameters(CommonParameters[I], total=False):
    """Parameters of `ScalingBloomFilter`."""

    capacity: int | None
    """Number of items that the first layer is sized for.  With `capacity` and `error_rate`, the first call
    checks a stored filter, and the first add or claim creates a missing one; without them the filter must
    exist, and all parameters are read from the server."""
    error_rate: float | None
    """The false-positive rate of all layers together, strictly between 0 and 1."""
    expansion: int
    """Room of a layer divided by that of the layer before, at least 1, by default 2.  No layer is larger than
    a key can be (512 MB)."""
    tightening_ratio: float
    """Error rate of a layer divided by that of the layer before, strictly between 0 and 1, by default 0.5.  A
    larger ratio saves memory if there are many layers."""
    layout: OwnLayout | None
    """`"blocked"` (faster calls) or `"classic"` (less memory).  None means blocked."""
    ttl: Seconds | None
    """Seconds (or a timedelta) from creation until the whole filter expires; None for never.  An object that
    lives longer raises `FilterLostError` then: for items that are to be forgotten one by one, use a
    `RotatingBloomFilter`."""


class RotatingParameters(CommonParameters[I], total=False):
    """Parameters of `RotatingBloomFilter`."""

    capacity: int | None
    """Number of items added within any window.  With more items the error rate grows in proportion.  With 255
    layers, an add that needs another one raises `FilterFullError`, until some expire.  With `capacity`,
    `error_rate` and `window`, the first call checks a stored filter, and the first add or claim creates a
    missing one; without them the filter must exist, and all parameters are read from the server."""
    error_rate: float | None
    """The false-positive rate with `capacity` items in a window, however unevenly they come."""
    window: Seconds | None
    """Seconds (or a timedelta) for which an item is found at least."""
    slices: int
    """Number of slices of the window, 1 to 64, by default 4.  More slices forget more exactly, and cost more.
    A slice must be 100 ms or longer."""
    layout: OwnLayout | None
    """`"blocked"` (faster calls) or `"classic"` (less memory).  None means blocked."""


class ShardedParameters(CommonParameters[I], total=False):
    """Parameters of `ShardedBloomFilter`."""

    capacity: int | None
    """Number of items that the filter is sized for.  With `capacity` and `error_rate`, the first call checks
    a stored filter, and the first add or claim creates a missing one; without them the filter must exist."""
    error_rate: float | None
    """The false-positive rate at `capacity`, strictly between 0 and 1."""
    shards: int | None
    """Number of shards, 1 to 4,096.  None takes the stored number; a new filter then gets 16, or more if a
    shard would be larger than 128 MB.  One script creates a shard and blocks its server for 0.25 to 0.5 ms a
    megabyte: more shards block it for less time, and make batches slower."""
    layout: OwnLayout | None
    """`"blocked"` (faster calls) or `"classic"` (up to 14% less memory).  None takes the stored layout; a new
    filter is then blocked."""
    seed: int | None
    """Seed of the hash that picks the shard.  None takes the stored seed; a new filter then has the
    default."""
    ttl: Seconds | None
    """Seconds (or a timedelta) from creation until the whole filter expires; None for never.  An object that
    lives longer raises `FilterLostError` then: for items that are to be forgotten one by one, use a
    `RotatingBloomFilter`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """The parameters of `CommonParameters`, checked."""

    on_lost: OnLost = "raise"
    retry_safe: bool = True
    encode: Callable[[Any], bytes] | None = None
    min_replicas: int = 0
    replica_timeout: Seconds = 1.0

    def __post_init__(self) -> None:
        arguments.flag("retry_safe", self.retry_safe)
        arguments.function("encode", self.encode, "of an item that returns bytes")
        self.wait  # noqa: B018 - checks its parameters

    @property
    def wait(self) -> Wait | None:
        """The replicas that a write waits for; None if it waits for none."""
        replicas = self.min_replicas
        if isinstance(replicas, bool) or not isinstance(replicas, int):
            raise TypeError(
                f"min_replicas must be an int, not {type(replicas).__name__} {arguments.shown(replicas)}"
            )
        if not 0 <= replicas <= _MOST_REPLICAS:
            raise ValueError(
                f"min_replicas must be from 0 to {_MOST_REPLICAS}, not {arguments.shown(replicas)}"
            )
        timeout = arguments.milliseconds("replica_timeout", self.replica_timeout)
        return Wait(replicas, timeout) if replicas else None

    def storage(self, ttl: Seconds | None, *, can_create: bool) -> StorageOptions:
        """Return the options of a filter's storage; some need a filter that can be created."""
        if ttl is not None and not can_create:
            raise ValueError(
                "ttl counts from creation, so it needs capacity and error_rate; or call expire()"
            )
        on_lost = arguments.on_lost(self.on_lost, can_create=can_create)
        wait, encoding = self.wait if self.min_replicas else None, number_of(self.encode)
        return {"ttl": lifetime(ttl), "on_lost": on_lost, "wait": wait, "encoding": encoding}


_DEFAULTS: Final = Options()

DEFAULTS: Final[dict[str, Any]] = {
    **dict.fromkeys(("capacity", "error_rate", "window")),
    "slices": 4,
    "expansion": 2,
    "tightening_ratio": 0.5,
    **dict.fromkeys(("shards", "layout", "seed", "ttl")),
    "on_full": "warn",
    "local_cache": False,
    **{each.name: each.default for each in fields(Options)},
}
"""The defaults of all parameters, as the operations have them, in the order of the signatures."""


def checked_options(given: Common) -> Options:
    """Return the options of every class, checked."""
    return Options(**given) if given else _DEFAULTS


def lifetime(ttl: Seconds | None) -> int:
    """Return a ttl in milliseconds; 0 for None."""
    return 0 if ttl is None else arguments.milliseconds("ttl", ttl)
