"""A filter that grows."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

from bloomredis import arguments
from bloomredis.arguments import OnLost
from bloomredis.bits import sizing
from bloomredis.operations import options
from bloomredis.operations.layered import LayeredOperations, _stack
from bloomredis.stored import planning
from bloomredis.stored.layer_record import ScalingRecord


class ScalingOperations(LayeredOperations):
    """A Bloom filter that grows by itself, so that the number of items need not be known.

    It begins with room for `capacity` items.  When that is used up it gets another layer of `expansion`
    times the room, and so on; an item is in the filter if it is in any layer, and only the newest is written.
    Each layer errs less by `tightening_ratio` than the one before, so the rate of all together stays below
    `error_rate` however many there are.  Exactly one layer is begun however many writers reach the end of one
    at once, and everybody follows within the same call.

    A call costs the server a little more for each layer, and a client one more round trip when it meets a new
    one.  All keys lie in one hash slot.  Other parameters are those of `BloomFilter`.

    :param capacity: items that the first layer is made for.
    :param error_rate: the false-positive rate of all layers together, strictly between 0 and 1.
    :param expansion: how many times larger a layer is than the one before, at least 1; no layer is larger
        than a key can be (512 MB).
    :param tightening_ratio: the error rate of a layer as a share of that of the one before, strictly between
        0 and 1: a larger one saves memory if there are many layers.
    :raises ValueError, TypeError: for bad arguments, before any I/O.
    """

    _made = ScalingRecord

    def __init__(
        self,
        name: str,
        *,
        capacity: int,
        error_rate: float,
        expansion: int = 2,
        tightening_ratio: float = 0.5,
        layout: str | None = None,
        ttl: float | timedelta | None = None,
        on_lost: OnLost = "raise",
        retry_safe: bool = True,
        encode: Callable[[Any], bytes] | None = None,
        coalesce: bool | None = None,
        min_replicas: int = 0,
        replica_timeout: float | timedelta = 1.0,
    ) -> None:
        new = ScalingRecord(
            head=planning.whole(capacity, error_rate, layout, ScalingRecord.kind),
            expansion=sizing.positive("expansion", expansion),
            tightening_ratio=arguments.share("tightening_ratio", tightening_ratio),
        )
        layered = _stack(
            name,
            ScalingRecord,
            new=new,
            layout=layout,
            ttl=ttl,
            on_lost=on_lost,
            wait=options.wait(min_replicas, replica_timeout),
        )
        self._assemble(layered, retry_safe=retry_safe, encode=encode, coalesce=coalesce)
