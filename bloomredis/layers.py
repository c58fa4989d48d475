"""What filters in a stack of layers do: one that grows, and one that forgets."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any, ClassVar, NoReturn, Self

from bloomredis import arguments, info, sizing
from bloomredis.filter import FilterOperations
from bloomredis.hashing import Item
from bloomredis.info import FilterInfo
from bloomredis.pipelines import AnyPipeline
from bloomredis.protocol import Op, Wait
from bloomredis.stack import MAX_SLICES, Root, Rotating, Scaling
from bloomredis.stacked import StoredStack
from bloomredis.stored import OnLost, Opened


class StackOperations(FilterOperations):
    """What filters in a stack of layers have in common."""

    _stored: StoredStack
    _made: ClassVar[type[Root]]

    @classmethod
    def unopened(cls, name: str) -> Self:
        operations = cls.__new__(cls)
        FilterOperations._assemble(operations, _stack(name, cls._made))  # noqa: SLF001 - its own
        return operations

    def queue_add(self, opened: Opened, pipe: AnyPipeline, item: Item) -> NoReturn:  # noqa: ARG002 - refused
        raise TypeError(
            f"{self.name!r} may get another layer before the pipeline is executed, "
            "and a queued call cannot follow it; use add_many"
        )

    def queue_contains(self, opened: Opened, pipe: AnyPipeline, item: Item) -> NoReturn:
        self.queue_add(opened, pipe, item)

    def info(self) -> Op[FilterInfo]:
        layers = yield from self._layers()
        return info.stacked(self.name, self._stored.root, layers)


class ScalingOperations(StackOperations):
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

    _made = Scaling

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
        new = Scaling(
            head=arguments.whole(capacity, error_rate, layout, Scaling.kind),
            expansion=sizing.positive("expansion", expansion),
            tightening_ratio=arguments.share("tightening_ratio", tightening_ratio),
        )
        stack = _stack(
            name,
            Scaling,
            new=new,
            layout=layout,
            ttl=ttl,
            on_lost=on_lost,
            wait=arguments.wait(min_replicas, replica_timeout),
        )
        self._assemble(stack, retry_safe=retry_safe, encode=encode, coalesce=coalesce)


class RotatingOperations(StackOperations):
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

    _made = Rotating

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
        new = Rotating(
            head=arguments.whole(capacity, error_rate, layout, Rotating.kind),
            width=-(-1000 * arguments.milliseconds("window", window) // cut),
            slices=cut,
        )
        stack = _stack(
            name,
            Rotating,
            new=new,
            layout=layout,
            on_lost=on_lost,
            wait=arguments.wait(min_replicas, replica_timeout),
        )
        self._assemble(stack, retry_safe=retry_safe, encode=encode, coalesce=coalesce)

    def expire(self, seconds: float | timedelta) -> NoReturn:  # noqa: ARG002 - refused
        raise TypeError(
            f"{self.name!r} forgets by itself what is older than its window; delete() ends it at once"
        )


def _stack(
    name: str,
    made: type[Root],
    *,
    new: Root | None = None,
    layout: str | None = None,
    ttl: float | timedelta | None = None,
    on_lost: OnLost = "raise",
    wait: Wait | None = None,
) -> StoredStack:
    """Return what is under the key, nothing being known of it yet; `ValueError` for what makes no sense."""
    return StoredStack(
        arguments.name(name),
        made=made,
        new=None if new is None else new.complete(),
        layout=layout,
        ttl=0 if ttl is None else arguments.milliseconds("ttl", ttl),
        on_lost=on_lost if new is None else arguments.on_lost(on_lost, can_create=True),
        wait=wait,
    )
