"""`bloomredis adopt`, which turns a filter of `--kind fixed` into one that grows."""

from __future__ import annotations

from typing import Annotated, Final

from bloomredis import ScalingBloomFilter
from bloomredis.bits.encoding import Unknown
from bloomredis.cli import filters, stderr
from bloomredis.cli.info import whole
from bloomredis.cli.kinds import Kind
from bloomredis.cli.options import Expansion, Name, option, share
from bloomredis.cli.reports import Json
from bloomredis.cli.server import Cluster, Url, connect
from bloomredis.errors import FilterMismatchError
from bloomredis.stored import planning

_OWN: Final = " or ".join(planning.NAMES)


def adopt(
    name: Name,
    *,
    url: Url,
    cluster: Cluster = None,
    expansion: Expansion = None,
    tightening_ratio: Annotated[
        float | None,
        option(share, "RATE", "Error rate of a layer divided by that of the layer before (default: 0.5)."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Turn a filter of --kind fixed into one that grows.

    It is of --kind scaling then. It keeps its name, items, count and time to live, and grows from now on. Its
    error rate becomes 1 / (1 - tightening ratio) times as high, by default twice.

    First let workers finish their claims: claims that are held at that moment end, so that another worker may
    claim the same items. Programs that use the filter as a BloomFilter get FilterLostError at their next
    call, or FilterMismatchError if they open it later, until they use ScalingBloomFilter.
    """
    client = connect(url, cluster=cluster, retries=4)
    found = filters.opened(client, name)
    kind, layout = filters.kind_of(found), found.info().layout
    if kind is not Kind.FIXED or layout not in planning.NAMES:
        raise FilterMismatchError(
            f"{name!r} has --kind {kind} and --layout {layout}",
            command=f"adopt takes a filter of --kind fixed with --layout {_OWN}",
        )
    stderr.warn(
        f"claims that are held on {name!r} end; programs that use it as a BloomFilter get FilterLostError or "
        "FilterMismatchError until they use ScalingBloomFilter"
    )
    growth = filters.given(expansion=expansion, tightening_ratio=tightening_ratio)
    made = ScalingBloomFilter.adopt(client, name, encode=Unknown(), **growth)
    whole(made, as_json=as_json)
