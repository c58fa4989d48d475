"""The figures of the pages, from the stored results.

A page has its figures between two lines, `<!-- figures: NAME -->` and `<!-- end of figures -->`. In each
table more is better: a figure is the number of items that one side handles in the time that the other needs
for one.
"""

from __future__ import annotations

import json
import re
import statistics
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from benchmarks.report import chart, tables
from benchmarks.report.tables import ServerReport
from benchmarks.runner.measure import Figure
from benchmarks.sides.bitmaps import PipelinedSetbit
from benchmarks.sides.ours import Counting, Ours, OursByModule, ScalingFromSmall, Sharded
from benchmarks.sides.redisbloom import RedisBloom
from benchmarks.workloads import batch, bulk, claims, concurrency, sharding, single, streams

ROOT: Final = Path(__file__).parents[2]
RESULTS: Final = ROOT / "benchmarks" / "results"
STORED: Final = RESULTS / "results.json"
THROUGHPUT: Final = RESULTS / "throughput.json"
_PAGES: Final = (ROOT / "docs" / "speed.md", ROOT / "docs" / "more-machines.md")
_BLOCK: Final = re.compile(r"(<!-- figures: (\w+) -->\n).*?(\n<!-- end of figures -->)", re.DOTALL)
_UNMEASURED: Final = "These figures come with the next whole run of `make bench`."

OURS, MODULE, NATIVE = Ours.name, OursByModule.name, RedisBloom.name
_NEW: Final = batch.name_of("new", 1_000, 1e-2)
_FINER: Final = batch.name_of("new", 1_000, 1e-3)
_FINEST: Final = batch.name_of("new", 1_000, 1e-6)
_TEN: Final = batch.name_of("new", 10, 1e-2)
_TEST: Final = batch.name_of("contains", 1_000, 1e-2)
_LOAD: Final = bulk.load_of(1_000_000)


@dataclass(frozen=True)
class Row:
    """A row of a table: a side of a workload compared with another one."""

    what: str
    beside: str
    workload: str
    side: str
    against: str
    quantity: str = "wall"
    says: str = ""

    def figure(self, server: ServerReport) -> Figure | None:
        """Return how many times as fast the side is, or None if that was not measured."""
        try:
            return server.results[self.workload].ratio(self.quantity, self.against, self.side)
        except KeyError:
            return None

    def is_in(self, servers: Iterable[ServerReport]) -> bool:
        """Return whether any server has the figure."""
        return any(self.figure(server) for server in servers)


_ONE_ITEM: Final = (
    ("`add()` of a new item", "BF.ADD", single.NEW),
    ("`add()` of a new item, processors shared", "BF.ADD", single.UNPINNED_NEW),
    ("`contains()` of one item", "BF.EXISTS", single.CONTAINS),
    ("`contains()` of one item, processors shared", "BF.EXISTS", single.UNPINNED_CONTAINS),
)
RATIOS: Final = (
    *(Row(what, beside, name, OURS, NATIVE) for what, beside, name in _ONE_ITEM),
    Row("`add()` in one asyncio task", "BF.ADD", concurrency.tasks_of(1), OURS, NATIVE),
    *(
        Row(f"{n} asyncio tasks in `add()`", f"{n} tasks in BF.ADD", concurrency.tasks_of(n), OURS, NATIVE)
        for n in (8, 64, 256)
    ),
    Row("16 threads in `add()`", "16 threads in BF.ADD", concurrency.THREADS, OURS, NATIVE),
    Row("`add_many()` of 10 items at 1%", "BF.MADD", _TEN, OURS, NATIVE),
    Row("`add_many()` of 1,000 items at 1%", "BF.MADD", _NEW, OURS, NATIVE),
    Row("`add_many()` of 1,000 items at 1e-3", "BF.MADD", _FINER, OURS, NATIVE),
    Row("`add_many()` of 1,000 items at 1e-6", "BF.MADD", _FINEST, OURS, NATIVE),
    Row("`add_many()` of 1,000 items at 1%", "SETBITs in a pipeline", _NEW, OURS, PipelinedSetbit.name),
    Row("`contains_many()` of 1,000 items at 1%", "BF.MEXISTS", _TEST, OURS, NATIVE),
    Row("the same, server CPU", "BF.MEXISTS", _TEST, OURS, NATIVE, "cpu"),
    Row("`update()` of a million items", "BF.MADD of 1,000", _LOAD, OURS, NATIVE),
    Row("`local_cache`, 95% repeats, one by one", "BF.ADD", streams.ONE_BY_ONE, streams.CACHED, NATIVE),
    *(Row(f'`layout="module"`, {what}', beside, name, MODULE, NATIVE) for what, beside, name in _ONE_ITEM),
    Row('`layout="module"`, `add_many()` of 1,000', "BF.MADD", _NEW, MODULE, NATIVE),
)
_LOADED: Final = "`update()` into a `BloomFilter`"
KINDS: Final = (
    Row("claim and commit of one item", "`add()`", claims.ONE, claims.CLAIMED, OURS),
    Row("64 asyncio tasks in `once`", "64 tasks in `add()`", claims.TASKS, claims.CLAIMED, OURS),
    Row("`claim_many` and `commit_many` of 500", "`add_many()` of 500", claims.MANY, claims.CLAIMED, OURS),
    Row("`add()` of a `ShardedBloomFilter`", "`add()`", single.NEW, Sharded.name, OURS),
    Row(
        "`add_many()` of 1,000 by a `ShardedBloomFilter` on one server",
        "`add_many()`",
        _NEW,
        Sharded.name,
        OURS,
    ),
    Row("`update()` of a million into a `ShardedBloomFilter`", _LOADED, bulk.KINDS, Sharded.name, OURS),
    Row(
        "`update()` of a million into a `ScalingBloomFilter` for 62,500",
        _LOADED,
        bulk.KINDS,
        ScalingFromSmall.name,
        OURS,
    ),
    Row("`update()` of a million into a `CountingBloomFilter`", _LOADED, bulk.KINDS, Counting.name, OURS),
    Row("`update()` of a million into a `BloomFilter` for 50 million", _LOADED, bulk.KINDS, bulk.ROOMY, OURS),
)


_SHARDS: Final = 16  # of a sharded filter by default


def _fleet() -> Iterator[Row]:
    """Yield the rows about a sharded filter, each with its figure's meaning for several nodes."""
    one, says = sharding.over(1), "Shards cost the difference to 1: a batch arrives in parts."
    yield Row("1 cluster node", "`BloomFilter`", sharding.NODES, one, OURS, "busiest", says)
    for count in sharding.COUNTS[1:]:
        what, side = f"{count} cluster nodes", sharding.over(count)
        says = (
            f"{count} nodes take this many times the load of 1: the busiest has {-(-_SHARDS // count)} of "
            f"{_SHARDS} shards."
        )
        yield Row(what, "1 cluster node", sharding.NODES, side, one, "busiest", says)
    for workload, first, *others in sharding.GROWING:
        for side in others:
            for quantity, whose in (("cpu", "server"), ("client", "client")):
                what = f"{sharding.short(side)}, {whose} CPU"
                says = f"Below 1, an item costs the {whose} more than with {sharding.short(first)}."
                yield Row(what, sharding.short(first), workload, side, first, quantity, says)


FLEET: Final = tuple(_fleet())


def written(results: Path = RESULTS) -> dict[Path, str]:
    """Return the files with results, each with its text; a page is one of them with `RESULTS` alone."""
    machine, servers = tables.stored(results / STORED.name)
    files = {
        results / "results.md": tables.markdown(machine, servers),
        results / "speed.svg": chart.drawn(servers[0].about["server"], servers[0].results),
    }
    if results == RESULTS:
        files[results / "calls.svg"] = chart.calls_drawn(
            {name: kinds["blocked"] for name, kinds in _throughputs()["servers"].items()}
        )
        files |= {page: _BLOCK.sub(_filled(machine, servers), page.read_text()) for page in _PAGES}
    return files


def missing(servers: Sequence[ServerReport]) -> Iterator[str]:
    """Yield each row of a page that a server's results lack, with the names of the servers."""
    for row in (*RATIOS, *KINDS, *FLEET):
        if lacking := [server.name for server in servers if row.figure(server) is None]:
            sides = f"{row.side!r} and {row.against!r} of {row.workload!r}"
            yield f"{row.what} beside {row.beside} ({sides}), {', '.join(lacking)}"


def _filled(machine: Mapping[str, Any], servers: Sequence[ServerReport]) -> Callable[[re.Match[str]], str]:
    texts: dict[str, Callable[[], str]] = {
        "versions": lambda: _versions(machine, servers),
        "ratios": lambda: table(RATIOS, servers),
        "kinds": lambda: table(KINDS, servers),
        "server": lambda: _server(servers),
        "floor": lambda: _floors(servers),
        "fleet": lambda: table(FLEET, servers),
        "throughput": _throughput,
        "core": lambda: _core(servers),
    }
    return lambda block: f"{block[1]}\n{texts[block[2]]()}\n{block[3]}"


def table(rows: Iterable[Row], servers: Sequence[ServerReport]) -> str:
    """Return a table of the rows that any server has, or a sentence if none has one."""
    there = [row for row in rows if row.is_in(servers)]
    if not there:
        return _UNMEASURED
    last = "what it says" if there[0].says else "processors"
    heading = ["what", "beside", *(server.about["server"] for server in servers), last]
    cells = [_cells(row, servers) for row in there]
    return "\n".join(tables.table(heading, cells, "ll" + "r" * len(servers) + "l"))


def _cells(row: Row, servers: Iterable[ServerReport]) -> list[str]:
    figures = [row.figure(server) for server in servers]
    pinned = next(figure.pinned for figure in figures if figure)
    return [row.what, row.beside, *map(_times, figures), row.says or _PROCESSORS[pinned]]


_PROCESSORS: Final = {True: "own", False: "shared", None: ""}


def _times(figure: Figure | None) -> str:
    """Return a figure with its quartiles."""
    if figure is None:
        return "not measured"
    spread = f" ({' to '.join(map(_number, figure.quartiles))})" if figure.quartiles else ""
    return f"{_number(figure.median)} times{spread}"


def _number(value: float) -> str:
    return f"{value:.2f}" if value < 2 else f"{value:.1f}"


def _versions(machine: Mapping[str, Any], servers: Sequence[ServerReport]) -> str:
    packages = machine["packages"]
    module = next((found for server in servers if (found := server.about.get("redisbloom"))), "none")
    return (
        f"These figures come from `make bench` on {machine['date']}: this library and its peers in turns,\n"
        f"in one run, on one server, on {machine['cores']} cores, with Python {machine['python']}, "
        f"redis-py {packages['redis']},\nhiredis {packages['hiredis']} and RedisBloom {module} "
        "(the module itself, through redis-py)."
    )


def _server(servers: Iterable[ServerReport]) -> str:
    """Return a sentence about each server's part in the work."""
    return "\n".join(
        f"{server.about['server']} needs {found.median(OURS, 'cpu') * 1e6:.1f} µs of its processor "
        f"for a new item at 1%, in a batch of 1,000,\n"
        f"and sends {found.median(OURS, 'replicated'):.0f} bytes to each replica."
        for server in servers
        if (found := server.results.get(_NEW))
    )


def _throughputs() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(THROUGHPUT.read_text("utf-8"))
    return found


def _core(servers: Sequence[ServerReport]) -> str:
    """Return a table of the items that one core of a server takes a second, by verb."""
    single: dict[str, dict[str, dict[str, float]]] = _throughputs()["servers"]
    names = [server.about["server"] for server in servers]
    rows = [
        [f"`{verb}` of one item", *(_rounded(1e6 / single[name]["blocked"][verb]) for name in names)]
        for verb in single[names[0]]["blocked"]
    ] + [
        [what, *(_rounded(1 / server.results[workload].median(OURS, "cpu")) for server in servers)]
        for what, workload in (("`add_many` of 1,000", _NEW), ("`contains_many` of 1,000", _TEST))
    ]
    return "\n".join(tables.table(["items a second", *names], rows, "l" + "r" * len(names)))


def _rounded(rate: float) -> str:
    return f"{float(f'{rate:.2g}'):,.0f}"


def _throughput() -> str:
    """Return a table of the calls that a server takes a second, by kind of filter and verb."""
    found = _throughputs()
    servers: dict[str, dict[str, dict[str, float]]] = found["servers"]
    first = next(iter(servers.values()))
    verbs = list(dict.fromkeys(verb for times in first.values() for verb in times))
    rows = [
        [kind, *(" / ".join(_thousands(each[kind].get(verb)) for each in servers.values()) for verb in verbs)]
        for kind in first
        if all(kind in each for each in servers.values())
    ]
    heading = ["thousands a second", *(f"`{verb}`" for verb in verbs)]
    names, machine = " / ".join(servers), found["machine"]
    said = f"{names}, measured on {machine['date']} on one core of an {machine['cpu']}:"
    return "\n".join([said, "", *tables.table(heading, rows, "l" + "r" * len(verbs))])


def _thousands(microseconds: float | None) -> str:
    return "-" if microseconds is None else f"{1000 / microseconds:.0f}"


def _floors(servers: Iterable[ServerReport]) -> str:
    """Return, for each server, a sentence about the PINGs over a bare socket before each measurement."""
    return "\n".join(filter(None, map(_floor, servers))) or _UNMEASURED


def _floor(server: ServerReport) -> str:
    found = {True: _pings(server, pinned=True), False: _pings(server, pinned=False)}
    said = [
        f"{statistics.median(pings) * 1e6:.0f} µs with {_PROCESSORS[pinned]} processors"
        for pinned, pings in found.items()
        if pings
    ]
    return f"A PING to {server.about['server']} over a bare socket took {' and '.join(said)}." if said else ""


def _pings(server: ServerReport, *, pinned: bool) -> list[float]:
    return [
        ping
        for result in server.results.values()
        if result.pinned is pinned
        for side in result.sides.values()
        for ping in side.get("floor", ())
    ]
