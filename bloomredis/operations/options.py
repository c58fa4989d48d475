"""Parameters of the public classes: their types, their defaults, their checks.

The typed dictionaries are for functions that pass parameters on, such as `from_url` and `open`.  The
constructors in `drivers.constructors` have the same parameters, with their defaults.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final, Generic, Literal, Required, TypedDict

from bloomredis import arguments
from bloomredis.arguments import OnFull, OnLost
from bloomredis.bits.encoding import Item, number_of
from bloomredis.operations.events import Hook, check_hook
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
OwnLayout = Literal["classic", "blocked"]
AnyLayout = Literal["classic", "blocked", "module"] | ForeignLayout
_MOST_REPLICAS: Final = 1000


class CommonParameters(TypedDict, Generic[I], total=False):
    """Parameters of every class."""

    on_lost: OnLost
    retry_safe: bool
    encode: Callable[[I], bytes] | None
    coalesce: bool | None
    keep_connection: bool | None
    min_replicas: int
    replica_timeout: Seconds
    observe: Hook | None


Common = CommonParameters[Any]
"""The same for operations, which take items of any type; only the public classes restrict the type."""


class PlainOptions(CommonParameters[I], total=False):
    """Parameters of `BloomFilter` that are not stored."""

    on_full: OnFull
    local_cache: bool
    local_cache_check: Seconds


class PlainParameters(PlainOptions[I], total=False):
    """Parameters of `BloomFilter`."""

    capacity: int | None
    error_rate: float | None
    layout: AnyLayout | None
    ttl: Seconds | None
    refresh_ttl: bool


class CountingParameters(CommonParameters[I], total=False):
    """Parameters of `CountingBloomFilter`."""

    capacity: int | None
    error_rate: float | None
    ttl: Seconds | None


class ScalingParameters(CommonParameters[I], total=False):
    """Parameters of `ScalingBloomFilter`."""

    capacity: Required[int]
    error_rate: Required[float]
    expansion: int
    tightening_ratio: float
    layout: OwnLayout | None
    ttl: Seconds | None


class RotatingParameters(CommonParameters[I], total=False):
    """Parameters of `RotatingBloomFilter`."""

    capacity: Required[int]
    error_rate: Required[float]
    window: Required[Seconds]
    slices: int
    layout: OwnLayout | None


class ShardedParameters(CommonParameters[I], total=False):
    """Parameters of `ShardedBloomFilter`."""

    capacity: int | None
    error_rate: float | None
    shards: int | None
    layout: OwnLayout | None
    seed: int | None
    ttl: Seconds | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """The options that every class has.

    :param on_lost: the reaction to the loss or replacement of the filter that this object has used.
        `"raise"` raises `FilterLostError`.  `"recreate"` logs a warning and goes on with the filter stored
        now, or with a new one.  A callable is called with the error and may raise it; if it returns, this
        object goes on as with `"recreate"`.
    :param retry_safe: let a retry return the answer of the first execution, so that a lost reply never turns
        into "already there".
    :param encode: turns an item into bytes, for items that are not str, bytes or int.
    :param coalesce: let concurrent calls share round trips: calls of asyncio tasks (None means True), or of
        threads other than the main one (None means False).
    :param keep_connection: send scripts over a connection of the client's pool directly, bypassing the
        client's per-call overhead, which is larger than the call itself.  The client's limits and retries
        still apply.  None does so unless something else could notice, such as a subclass, instrumentation, a
        blocking pool or a cluster.  True raises ValueError in these cases.  False never does so.
    :param min_replicas: number of replicas that must have a write before the call returns; with fewer it
        raises `OutcomeUnknownError`.  On a cluster these are replicas of the node that has the key.
    :param replica_timeout: seconds (or a timedelta) to wait for the replicas.
    :param observe: a hook that is called with a `CallEvent` after each call: see `bloomredis.instrument`.
        None takes the hook of the process, if there is one.
    """

    on_lost: OnLost = "raise"
    retry_safe: bool = True
    encode: Callable[[Any], bytes] | None = None
    coalesce: bool | None = None
    keep_connection: bool | None = None
    min_replicas: int = 0
    replica_timeout: Seconds = 1.0
    observe: Hook | None = None

    def __post_init__(self) -> None:
        arguments.on_lost(self.on_lost, can_create=True)
        arguments.flag("retry_safe", self.retry_safe)
        arguments.flag("coalesce", self.coalesce, optional=True)
        arguments.flag("keep_connection", self.keep_connection, optional=True)
        if self.encode is not None and not callable(self.encode):
            raise TypeError(
                f"encode must be a callable or None, not {type(self.encode).__name__} "
                f"{arguments.shown(self.encode)}"
            )
        check_hook("observe", self.observe)
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
        encoding = number_of(self.encode)
        return {"ttl": lifetime(ttl), "on_lost": on_lost, "wait": self.wait, "encoding": encoding}


def lifetime(ttl: Seconds | None) -> int:
    """Return a ttl in milliseconds; 0 for None."""
    return 0 if ttl is None else arguments.milliseconds("ttl", ttl)
