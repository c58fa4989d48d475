"""Constructors of the public classes, written once for synchronous and asyncio clients.

Each passes its parameters to the operations, which check them.  The docstrings of the public classes describe
the parameters.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

from bloomredis.arguments import OnFull, OnLost
from bloomredis.drivers.binding import Bound, constructor
from bloomredis.operations.events import Hook
from bloomredis.operations.kinds.counting import CountingOperations
from bloomredis.operations.kinds.partitioned import operations
from bloomredis.operations.kinds.rotating import RotatingOperations
from bloomredis.operations.kinds.scaling import ScalingOperations
from bloomredis.operations.kinds.sharded import ShardedOperations
from bloomredis.operations.options import AnyLayout, I, OwnLayout, Seconds

Client = TypeVar("Client")


class PlainConstructor(Bound[Client], Generic[Client, I]):
    """The constructor of `BloomFilter`."""

    @constructor
    def __init__(
        self,
        client: Client | Sequence[Client],
        name: str,
        *,
        capacity: int | None = None,
        error_rate: float | None = None,
        layout: AnyLayout | None = None,
        ttl: Seconds | None = None,
        refresh_ttl: bool = False,
        on_full: OnFull = "warn",
        local_cache: bool = False,
        local_cache_check: Seconds = 1.0,
        on_lost: OnLost = "raise",
        retry_safe: bool = True,
        encode: Callable[[I], bytes] | None = None,
        coalesce: bool | None = None,
        keep_connection: bool | None = None,
        min_replicas: int = 0,
        replica_timeout: Seconds = 1.0,
        observe: Hook | None = None,
    ) -> None:
        made = operations(
            name, capacity=capacity, error_rate=error_rate, layout=layout, ttl=ttl, refresh_ttl=refresh_ttl,
            on_full=on_full, local_cache=local_cache, local_cache_check=local_cache_check, on_lost=on_lost,
            retry_safe=retry_safe, encode=encode, coalesce=coalesce, keep_connection=keep_connection,
            min_replicas=min_replicas, replica_timeout=replica_timeout, observe=observe,
        )  # fmt: skip
        super().__init__(client, made)


class ScalingConstructor(Bound[Client], Generic[Client, I]):
    """The constructor of `ScalingBloomFilter`."""

    @constructor
    def __init__(
        self,
        client: Client | Sequence[Client],
        name: str,
        *,
        capacity: int,
        error_rate: float,
        expansion: int = 2,
        tightening_ratio: float = 0.5,
        layout: OwnLayout | None = None,
        ttl: Seconds | None = None,
        on_lost: OnLost = "raise",
        retry_safe: bool = True,
        encode: Callable[[I], bytes] | None = None,
        coalesce: bool | None = None,
        keep_connection: bool | None = None,
        min_replicas: int = 0,
        replica_timeout: Seconds = 1.0,
        observe: Hook | None = None,
    ) -> None:
        made = ScalingOperations(
            name, capacity=capacity, error_rate=error_rate, expansion=expansion,
            tightening_ratio=tightening_ratio, layout=layout, ttl=ttl, on_lost=on_lost, retry_safe=retry_safe,
            encode=encode, coalesce=coalesce, keep_connection=keep_connection, min_replicas=min_replicas,
            replica_timeout=replica_timeout, observe=observe,
        )  # fmt: skip
        super().__init__(client, made)


class RotatingConstructor(Bound[Client], Generic[Client, I]):
    """The constructor of `RotatingBloomFilter`."""

    @constructor
    def __init__(
        self,
        client: Client | Sequence[Client],
        name: str,
        *,
        capacity: int,
        error_rate: float,
        window: Seconds,
        slices: int = 4,
        layout: OwnLayout | None = None,
        on_lost: OnLost = "raise",
        retry_safe: bool = True,
        encode: Callable[[I], bytes] | None = None,
        coalesce: bool | None = None,
        keep_connection: bool | None = None,
        min_replicas: int = 0,
        replica_timeout: Seconds = 1.0,
        observe: Hook | None = None,
    ) -> None:
        made = RotatingOperations(
            name, capacity=capacity, error_rate=error_rate, window=window, slices=slices, layout=layout,
            on_lost=on_lost, retry_safe=retry_safe, encode=encode, coalesce=coalesce,
            keep_connection=keep_connection, min_replicas=min_replicas, replica_timeout=replica_timeout,
            observe=observe,
        )  # fmt: skip
        super().__init__(client, made)


class ShardedConstructor(Bound[Client], Generic[Client, I]):
    """The constructor of `ShardedBloomFilter`."""

    @constructor
    def __init__(
        self,
        client: Client,
        name: str,
        *,
        capacity: int | None = None,
        error_rate: float | None = None,
        shards: int | None = None,
        layout: OwnLayout | None = None,
        seed: int | None = None,
        ttl: Seconds | None = None,
        on_lost: OnLost = "raise",
        retry_safe: bool = True,
        encode: Callable[[I], bytes] | None = None,
        coalesce: bool | None = None,
        keep_connection: bool | None = None,
        min_replicas: int = 0,
        replica_timeout: Seconds = 1.0,
        observe: Hook | None = None,
    ) -> None:
        made = ShardedOperations(
            name, capacity=capacity, error_rate=error_rate, shards=shards, layout=layout, seed=seed, ttl=ttl,
            on_lost=on_lost, retry_safe=retry_safe, encode=encode, coalesce=coalesce,
            keep_connection=keep_connection, min_replicas=min_replicas, replica_timeout=replica_timeout,
            observe=observe,
        )  # fmt: skip
        super().__init__(client, made)


class CountingConstructor(Bound[Client], Generic[Client, I]):
    """The constructor of `CountingBloomFilter`."""

    @constructor
    def __init__(
        self,
        client: Client | Sequence[Client],
        name: str,
        *,
        capacity: int | None = None,
        error_rate: float | None = None,
        ttl: Seconds | None = None,
        on_lost: OnLost = "raise",
        retry_safe: bool = True,
        encode: Callable[[I], bytes] | None = None,
        coalesce: bool | None = None,
        keep_connection: bool | None = None,
        min_replicas: int = 0,
        replica_timeout: Seconds = 1.0,
        observe: Hook | None = None,
    ) -> None:
        made = CountingOperations(
            name, capacity=capacity, error_rate=error_rate, ttl=ttl, on_lost=on_lost, retry_safe=retry_safe,
            encode=encode, coalesce=coalesce, keep_connection=keep_connection, min_replicas=min_replicas,
            replica_timeout=replica_timeout, observe=observe,
        )  # fmt: skip
        super().__init__(client, made)
