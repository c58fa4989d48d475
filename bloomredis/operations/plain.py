"""A Bloom filter in one key, or in another system's bitmap."""

from __future__ import annotations

from typing import Any, Unpack

from bloomredis import arguments
from bloomredis.operations.filter import FilterOperations
from bloomredis.operations.options import CommonParameters, Options, Seconds, lifetime
from bloomredis.operations.pipelines import Queueing
from bloomredis.operations.snapshot import LocalFilter, snapshot
from bloomredis.protocol.calls import Wait
from bloomredis.protocol.steps import Op
from bloomredis.stored import planning
from bloomredis.stored.base import Stored
from bloomredis.stored.foreign import (
    ConfiguredBitmap,
    ConfiguredLayout,
    ForeignLayout,
    StoredBitmap,
    checked_layout,
)
from bloomredis.stored.foreign_layers import ChainLayout, LinkedLayout, StoredChain, StoredLinks
from bloomredis.stored.single import StoredFilter


class PlainOperations(Queueing, FilterOperations):
    """The verbs of `BloomFilter`."""

    def __init__(
        self,
        name: str,
        *,
        capacity: int | None = None,
        error_rate: float | None = None,
        layout: str | ForeignLayout | None = None,
        ttl: Seconds | None = None,
        refresh_ttl: bool = False,
        local_cache: bool = False,
        local_cache_check: Seconds = 1.0,
        **common: Unpack[CommonParameters[Any]],
    ) -> None:
        options = Options(**common)
        arguments.flag("refresh_ttl", refresh_ttl)
        arguments.flag("local_cache", local_cache)
        name = arguments.name(name)
        check = arguments.milliseconds("local_cache_check", local_cache_check) / 1000
        stored: Stored
        if layout is None or isinstance(layout, str):
            _check_native(refresh_ttl=refresh_ttl)
            foreign, new = None, planning.template(capacity, error_rate, layout)
            storage = options.storage(ttl, can_create=new is not None)
            stored = StoredFilter(name, new=new, layout=layout, **storage)
        else:
            foreign = checked_layout(layout, capacity, error_rate)
            _check_foreign(name, foreign, options, local_cache=local_cache)
            stored = _bitmap(name, foreign, ttl, options.wait, refresh_ttl=refresh_ttl)
        super().__init__(stored, options, foreign=foreign, cache_check=check if local_cache else None)

    def snapshot(self) -> Op[LocalFilter[Any]]:
        """Return a copy of the filter in this process."""
        return snapshot(self.stored, self.codec)


def _check_native(*, refresh_ttl: bool) -> None:
    """Raise `ValueError` for options that need another system's layout."""
    if refresh_ttl:
        raise ValueError(
            "refresh_ttl needs a layout from bloomredis.compat; expire() renews the ttl of others"
        )


def _check_foreign(name: str, layout: ForeignLayout, options: Options, *, local_cache: bool) -> None:
    """Raise `ValueError` for options that need a header."""
    if local_cache:
        raise ValueError(f"local_cache=True is not for {layout.name}: the loss of {name!r} cannot be noticed")
    if options.on_lost != "raise":
        raise ValueError(
            f"on_lost={arguments.shown(options.on_lost)} has no use here: "
            "a bitmap without a header is not missed"
        )


def _bitmap(
    name: str, layout: ForeignLayout, ttl: Seconds | None, wait: Wait | None, *, refresh_ttl: bool
) -> StoredBitmap:
    if refresh_ttl and ttl is None:
        raise ValueError("refresh_ttl renews the ttl with each insert; ttl is missing")
    if isinstance(layout, ConfiguredLayout | LinkedLayout) and ttl is not None:
        raise ValueError(f"{layout.name} has several keys, so it takes no ttl; expire() covers all of them")
    milliseconds = lifetime(ttl)
    if isinstance(layout, ConfiguredLayout):
        return ConfiguredBitmap(name, layout=layout, wait=wait)
    if isinstance(layout, LinkedLayout):
        return StoredLinks(name, layout=layout, wait=wait)
    if isinstance(layout, ChainLayout):
        return StoredChain(name, layout=layout, ttl=milliseconds, refresh_ttl=refresh_ttl, wait=wait)
    return StoredBitmap(name, layout=layout, ttl=milliseconds, refresh_ttl=refresh_ttl, wait=wait)
