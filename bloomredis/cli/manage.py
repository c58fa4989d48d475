"""`bloomredis create`, `clear`, `acknowledge`, `expire` and `delete`, which act on a whole filter."""

from __future__ import annotations

from contextlib import suppress
from typing import Annotated, Any

from bloomredis.bits.module_items import ModuleItems
from bloomredis.cli import filters, stderr
from bloomredis.cli.filters import Wanted
from bloomredis.cli.info import brief
from bloomredis.cli.kinds import Kind
from bloomredis.cli.layouts import Layout
from bloomredis.cli.options import (
    Capacity,
    ErrorRate,
    Expansion,
    Name,
    Shards,
    Slices,
    Window,
    argument,
    kind_option,
    option,
    time,
)
from bloomredis.cli.reports import Json, report
from bloomredis.cli.server import Cluster, Url, connect
from bloomredis.errors import FilterLostError, FilterNotFoundError

Ttl = Annotated[float | None, option(time, "TIME", "Time until a new filter expires, such as 12h or 7d.")]


def create(  # long: the signature declares every option
    name: Name,
    *,
    url: Url,
    cluster: Cluster = None,
    kind: Annotated[Kind | None, kind_option("what the other options imply")] = None,
    capacity: Capacity = None,
    error_rate: ErrorRate = None,
    layout: Layout = None,
    window: Window = None,
    slices: Slices = None,
    shards: Shards = None,
    expansion: Expansion = None,
    ttl: Ttl = None,
    as_json: Json = False,
) -> None:
    """Create a filter, or compare the stored one with the options.

    A new filter needs --capacity and --error-rate. If the filter exists, only the options that are given are
    compared.
    """
    wanted = Wanted(
        kind=kind, capacity=capacity, error_rate=error_rate, layout=layout,
        window=window, slices=slices, shards=shards, expansion=expansion,
    )  # fmt: skip
    meant = wanted.checked()
    if ttl is not None and meant is Kind.ROTATING:
        raise ValueError(
            "--kind rotating takes no --ttl: it expires by itself a --window after the last item"
        )
    client = connect(url, cluster=cluster)
    if wanted.is_foreign:
        brief(filters.make(client, name, wanted, Kind.FIXED, **filters.given(ttl=ttl)), as_json=as_json)
        stderr.note(f"nothing is stored before the first add; give --layout {layout} each time")
        return
    with suppress(FilterNotFoundError):
        found = filters.opened(client, name)
        filters.check_parameters(found, wanted)
        brief(found, as_json=as_json)
        return
    missing = [
        one for one, value in (("--capacity", capacity), ("--error-rate", error_rate)) if value is None
    ]
    if missing:
        raise ValueError(f"a new filter needs {' and '.join(missing)}")
    made = filters.make(client, name, wanted, meant or Kind.FIXED, **filters.given(ttl=ttl))
    made.create()
    brief(made, as_json=as_json)


def clear(
    name: Name, *, url: Url, cluster: Cluster = None, layout: Layout = None, as_json: Json = False
) -> None:
    """Empty a filter but keep its parameters.

    A filter that has lost a part is complete and empty then. Programs that use the filter get FilterLostError
    once in each object, and then go on.
    """
    found = filters.opened(connect(url, cluster=cluster), name, layout)
    found.clear()
    _say_what_stays(found)
    brief(found, as_json=as_json)


def acknowledge(name: Name, *, url: Url, cluster: Cluster = None, as_json: Json = False) -> None:
    """Let programs that have lost a filter, or a part of it, go on.

    They go on with what is stored. Each object in them gets FilterLostError once, if it has not yet. What was
    lost is new again. A shard that is missing is made again, empty. If the whole filter is missing, run
    bloomredis create first.
    """
    try:
        found = filters.opened(connect(url, cluster=cluster), name)
    except FilterNotFoundError as error:
        error.command += f"; then run bloomredis acknowledge {name} again"
        raise
    missing = ""
    try:
        found.create()
    except FilterLostError as lost:
        missing = lost.problem
    found.acknowledge()
    if missing:
        stderr.warn(f"{missing}: the items of that part are new again")
    _say_what_stays(found)
    brief(found, as_json=as_json)


def _say_what_stays(found: Any) -> None:
    """Say if a filter cannot store that its loss was acknowledged."""
    if found._operations.local_parameters().get("layout") == ModuleItems.name:  # noqa: SLF001 - info() counts all bits
        stderr.warn("a key of the server's module cannot store this: restart the programs that use it")


def expire(
    name: Name,
    after: Annotated[float, argument(time, "TIME", "Time from now, such as 12h or 7d.")],
    *,
    url: Url,
    cluster: Cluster = None,
    layout: Layout = None,
    as_json: Json = False,
) -> None:
    """Let a filter and everything that it stores expire after a time."""
    found = filters.opened(connect(url, cluster=cluster), name, layout)
    if not hasattr(found, "expire"):
        raise ValueError(
            f"{name!r} is a rotating filter, which expires by itself a window after the last item"
        )
    found.expire(after)
    brief(found, as_json=as_json)


def delete(
    name: Name, *, url: Url, cluster: Cluster = None, layout: Layout = None, as_json: Json = False
) -> None:
    """Delete a filter and everything that it stores.

    Receipts, which make retries of calls safe, stay for up to ten minutes and then expire.
    """
    found = filters.opened(connect(url, cluster=cluster), name, layout)
    if not found.delete():
        raise FilterNotFoundError(f"there is no filter {name!r}", command="bloomredis list shows them")
    report({"name": name, "deleted": True}, as_json=as_json)
