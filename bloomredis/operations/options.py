"""What a filter's parameters say is under its key: a filter with a header, or another system's bitmap."""

from __future__ import annotations

from datetime import timedelta

from bloomredis import arguments
from bloomredis.arguments import OnLost, milliseconds
from bloomredis.protocol.calls import Wait
from bloomredis.stored import foreign, planning
from bloomredis.stored.base import Stored
from bloomredis.stored.foreign import ConfiguredBitmap, ConfiguredLayout, ForeignLayout, StoredBitmap
from bloomredis.stored.foreign_layers import ChainLayout, LinkedLayout, StoredChain, StoredLinks
from bloomredis.stored.header import FILTER
from bloomredis.stored.single import StoredFilter


def stored(
    name: str,
    *,
    capacity: int | None,
    error_rate: float | None,
    layout: str | ForeignLayout | None,
    ttl: float | timedelta | None,
    refresh_ttl: bool,
    on_lost: OnLost,
    wait: Wait | None,
    kind: int = FILTER,
) -> Stored:
    """Return what is under the key, nothing being known of it yet; `ValueError` for what makes no sense."""
    name = arguments.name(name)
    ttl_seconds = 0 if ttl is None else arguments.milliseconds("ttl", ttl)
    if layout is not None and not isinstance(layout, str):
        foreign.foreign(layout, capacity, error_rate)
        if refresh_ttl and ttl is None:
            raise ValueError("refresh_ttl renews the ttl with each insert; ttl is missing")
        if on_lost != "raise":
            raise ValueError(f"on_lost={on_lost!r} has no use here: a bitmap without a header is not missed")
        return _bitmap(name, layout, ttl_seconds, refresh_ttl=refresh_ttl, wait=wait)
    if refresh_ttl:
        raise ValueError(
            "refresh_ttl needs a layout from bloomredis.compat; expire() renews the ttl of others"
        )
    new = planning.template(capacity, error_rate, layout, kind)
    if ttl is not None and new is None:
        raise ValueError("ttl counts from creation, so it needs capacity and error_rate; or call expire()")
    return StoredFilter(
        name,
        new=new,
        layout=layout,
        ttl=ttl_seconds,
        on_lost=arguments.on_lost(on_lost, can_create=new is not None),
        wait=wait,
        kind=kind,
    )


def _bitmap(
    name: str, layout: ForeignLayout, ttl: int, *, refresh_ttl: bool, wait: Wait | None
) -> StoredBitmap:
    if isinstance(layout, ConfiguredLayout | LinkedLayout) and ttl:
        raise ValueError(f"{layout.name} has several keys, so it takes no ttl; expire() covers all of them")
    if isinstance(layout, ConfiguredLayout):
        return ConfiguredBitmap(name, layout=layout, wait=wait)
    if isinstance(layout, LinkedLayout):
        return StoredLinks(name, layout=layout, wait=wait)
    if isinstance(layout, ChainLayout):
        return StoredChain(name, layout=layout, ttl=ttl, refresh_ttl=refresh_ttl, wait=wait)
    return StoredBitmap(name, layout=layout, ttl=ttl, refresh_ttl=refresh_ttl, wait=wait)


def wait(min_replicas: int, replica_timeout: float | timedelta) -> Wait | None:
    """What a write waits for, None for nothing."""
    if isinstance(min_replicas, bool) or not isinstance(min_replicas, int):
        raise TypeError(f"min_replicas must be an int, not {min_replicas!r}")
    if min_replicas < 0:
        raise ValueError(f"min_replicas must be 0 or more, not {min_replicas}")
    timeout = milliseconds("replica_timeout", replica_timeout)
    return Wait(min_replicas, timeout) if min_replicas else None
