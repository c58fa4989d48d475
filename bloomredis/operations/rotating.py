"""A filter that forgets."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any, NoReturn

from bloomredis import arguments
from bloomredis.arguments import OnLost
from bloomredis.bits import sizing
from bloomredis.operations import options
from bloomredis.operations.layered import LayeredOperations, _stack
from bloomredis.stored import planning
from bloomredis.stored.layer_record import MAX_SLICES, RotatingRecord


class RotatingOperations(LayeredOperations):
    """A Bloom filter that forgets: it says whether an item was seen within the last `window`.

    An item that was added is found for at least `window`, and for at most `window` and one slice of it
    (`window / slices`), whatever the traffic; adding it again meanwhile does not prolong that.  Time is the
    server's.  What is over vanishes by itself, even if nobody calls any more.

    Each slice of time in which something is added has a layer of its own, made for the share of a slice
    (`capacity / slices`); when more than that comes in a slice it gets another one.  All keys lie in one hash
    slot.  Other parameters are those of `BloomFilter`.

    :param capacity: items that are added within any window.  If there are more, the error rate grows in
        proportion; `FilterFullError` comes when there are 255 layers.
    :param error_rate: the false-positive rate then, however unevenly the items come.
    :param window: seconds (or a timedelta) for which an item is found at least.
    :param slices: into how many slices the window is cut, 1 to 64: more forget more exactly, and cost more.
    :raises ValueError, TypeError: for bad arguments, before any I/O.
    """

    _made = RotatingRecord

    def __init__(
        self,
        name: str,
        *,
        capacity: int,
        error_rate: float,
        window: float | timedelta,
        slices: int = 4,
        layout: str | None = None,
        on_lost: OnLost = "raise",
        retry_safe: bool = True,
        encode: Callable[[Any], bytes] | None = None,
        coalesce: bool | None = None,
        min_replicas: int = 0,
        replica_timeout: float | timedelta = 1.0,
    ) -> None:
        cut = sizing.positive("slices", slices, MAX_SLICES)
        new = RotatingRecord(
            head=planning.whole(capacity, error_rate, layout, RotatingRecord.kind),
            width=-(-1000 * arguments.milliseconds("window", window) // cut),
            slices=cut,
        )
        layered = _stack(
            name,
            RotatingRecord,
            new=new,
            layout=layout,
            on_lost=on_lost,
            wait=options.wait(min_replicas, replica_timeout),
        )
        self._assemble(layered, retry_safe=retry_safe, encode=encode, coalesce=coalesce)

    def expire(self, seconds: float | timedelta) -> NoReturn:  # noqa: ARG002 - refused
        raise TypeError(
            f"{self.name!r} forgets by itself what is older than its window; delete() ends it at once"
        )
