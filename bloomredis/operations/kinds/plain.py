"""Operations of a Bloom filter in one key, or in another system's bitmap."""

from __future__ import annotations

from copy import copy
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Unpack, cast

from bloomredis import arguments
from bloomredis.arguments import OnFull
from bloomredis.bits import sizing
from bloomredis.bits.batch import Encoded
from bloomredis.bits.module_items import ModuleItems
from bloomredis.errors import BatchInterruptedError, BloomError, FilterFullError
from bloomredis.later import later
from bloomredis.operations.kinds.filter import FilterOperations
from bloomredis.operations.kinds.pipelines import Queueing
from bloomredis.operations.options import Common, Options, Seconds, checked_options, lifetime
from bloomredis.protocol.calls import Wait
from bloomredis.protocol.keys import as_bytes
from bloomredis.protocol.pending import Answers
from bloomredis.protocol.steps import Op
from bloomredis.stored import planning
from bloomredis.stored.foreign.bitmap import (
    ConfiguredBitmap,
    ForeignLayout,
    StoredBitmap,
    checked_layout,
)
from bloomredis.stored.foreign.chain import StoredChain, StoredLinks
from bloomredis.stored.module.filter import StoredModule
from bloomredis.stored.one_key.single import StoredFilter
from bloomredis.stored.state.base import Stored
from bloomredis.stored.state.reaction import Reaction

if TYPE_CHECKING:
    from bloomredis.operations.whole import snapshot as snapshots
else:
    snapshots = later("bloomredis.operations.whole", "snapshot")

MODULE_RATE: Final = 0.25
"""The highest error rate for which RedisBloom creates a filter."""


class PlainOperations(Queueing, FilterOperations):
    """The operations of `BloomFilter`."""

    def __init__(
        self,
        name: str,
        *,
        capacity: int | None = None,
        error_rate: float | None = None,
        layout: str | ForeignLayout | None = None,
        ttl: Seconds | None = None,
        on_full: OnFull = "warn",
        local_cache: bool | Seconds = False,
        **common: Unpack[Common],
    ) -> None:
        options = checked_options(common)
        name = arguments.name(name)
        cache_seconds = arguments.cache_seconds(local_cache)
        arguments.one_of("on_full", on_full, "warn", "raise")
        foreign = None
        if layout is None or isinstance(layout, str):
            own = _module if layout == ModuleItems.name else partial(_native, layout=layout)
            if cache_seconds is not None and layout == ModuleItems.name:
                raise ValueError("local_cache is not for layout='module', which keeps the bits to itself")
            stored: Stored = own(name, capacity, error_rate, ttl, options)
        else:
            foreign = checked_layout(layout, capacity, error_rate)
            _check_foreign(name, foreign, options, on_full, has_cache=cache_seconds is not None)
            stored = _bitmap(name, foreign, ttl, options.wait)
        if isinstance(stored, StoredFilter) or (isinstance(stored, StoredModule) and on_full != "warn"):
            stored.reaction = Reaction(on_full, stored.full)  # else the module makes the filter larger
        super().__init__(stored, options, foreign=foreign, cache_seconds=cache_seconds)

    def add_shared(self, encoded: Encoded) -> Op[Answers]:
        """Add the items of several callers; after one that a full filter refused, answer the others."""
        try:
            return (yield from self.items.add(encoded, encoded))
        except BatchInterruptedError as error:
            refused, answers = error.__cause__, cast("Answers", error.results)
            if not isinstance(refused, FilterFullError):
                raise
        left = encoded[len(answers) :]
        try:
            for item, there in zip(left, (yield from self.items.test(left)), strict=True):
                answers.append(cast("bool", (yield from self._behind(item, refused, there))))
        except BaseException:
            answers.leave()
            raise
        return answers

    def _behind(self, item: str | bytes, refused: FilterFullError, there: object) -> Op[object]:
        """Answer an item behind a refused one; an earlier call may have added it without a reply."""
        if (code := as_bytes(item)) not in self.pending.items:
            return False if there else copy(refused)
        try:
            return (yield from self.items.add_one(code, None))
        except BloomError as error:
            return error

    def snapshot(self) -> Op[snapshots.LocalFilter[object]]:
        """Return a copy of the filter in this process."""
        return snapshots.snapshot(self.stored, self.codec)


def _native(
    name: str,
    capacity: int | None,
    error_rate: float | None,
    ttl: Seconds | None,
    options: Options,
    *,
    layout: str | None,
) -> StoredFilter:
    new = planning.template(capacity, error_rate, layout)
    storage = options.storage(ttl, can_create=new is not None)
    return StoredFilter(name, new=new, layout=layout, **storage)


def _module(
    name: str, capacity: int | None, error_rate: float | None, ttl: Seconds | None, options: Options
) -> StoredModule:
    new = sizing.checked_sizes(capacity, error_rate)
    if new is not None and new[1] > MODULE_RATE:
        raise ValueError(
            f"error_rate must be at most {MODULE_RATE} with layout='module', not {new[1]}: the server's "
            "module lowers a higher rate to that"
        )
    return StoredModule(name, new=new, **options.storage(ttl, can_create=new is not None))


def _check_foreign(
    name: str, layout: ForeignLayout, options: Options, on_full: OnFull, *, has_cache: bool
) -> None:
    """Raise `ValueError` for options that need a header."""
    if on_full != "warn":
        raise ValueError(
            f"on_full={arguments.shown(on_full)} has no use here: a bitmap without a header does not count"
        )
    if has_cache:
        raise ValueError(f"local_cache is not for {layout.name}: the loss of {name!r} cannot be detected")
    if options.on_lost != "raise":
        raise ValueError(
            f"on_lost={arguments.shown(options.on_lost)} has no use here: "
            "the loss of a bitmap without a header cannot be detected"
        )


def _bitmap(name: str, layout: ForeignLayout, ttl: Seconds | None, wait: Wait | None) -> StoredBitmap:
    own: Any = layout  # the protocol that it follows is told by an attribute
    is_configured, is_linked = hasattr(own, "config_key"), hasattr(own, "links")
    insert_ttl: Seconds | None = getattr(own, "insert_ttl", None)
    if insert_ttl is not None and ttl is not None:
        raise ValueError(
            f"the layout has insert_ttl={insert_ttl!r}, which each insert renews, and ttl counts from "
            "creation; omit one of them"
        )
    if (is_configured or is_linked) and ttl is not None:
        raise ValueError(f"{layout.name} has several keys, so it takes no ttl; expire() covers all of them")
    milliseconds = lifetime(insert_ttl if ttl is None else ttl)
    if is_configured:
        return ConfiguredBitmap(name, layout=own, wait=wait)
    if is_linked:
        return StoredLinks(name, layout=own, wait=wait)
    if hasattr(own, "cursor_key"):
        return StoredChain(name, layout=own, ttl=milliseconds, wait=wait)
    return StoredBitmap(name, layout=layout, ttl=milliseconds, renews=insert_ttl is not None, wait=wait)
