"""Profile as Markdown: `python -m benchmarks.profile [--layout L] [SERVER…]`."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Iterator
from contextlib import closing, nullcontext
from typing import Final

from benchmarks.profile import calls, client_side, load
from benchmarks.runner import versions
from benchmarks.runner.bench import Bench, open_bench
from benchmarks.runner.counters import Counters
from benchmarks.runner.cpu_affinity import separate_cpus
from benchmarks.runner.servers import DEFAULT
from tests.support.servers import binaries

_PARTS: Final = (
    calls.one_item,
    calls.batch,
    load.load,
    client_side.cached,
    client_side.tasks,
)


def main() -> None:
    """Profile one-item adds, batches, loads, the local cache and tasks on the servers named."""
    found = binaries()
    parser = argparse.ArgumentParser(prog="python -m benchmarks.profile", description="Where the time goes.")
    parser.add_argument("server", nargs="*", help=f"one of {', '.join(sorted(found))}")
    parser.add_argument("--layout", choices=("classic", "blocked"))
    parser.add_argument("--quick", action="store_true", help="few rounds")
    options = parser.parse_args()
    for name in options.server or DEFAULT:
        with open_bench(name, found[name], quick=options.quick, layout=options.layout) as bench:
            for line in _profile(bench):
                print(line, flush=True)


def _profile(bench: Bench) -> Iterator[str]:
    layout = bench.filter("layout", capacity=1000, error_rate=0.01).info().layout
    about = versions.line(versions.machine(), versions.server(bench.client))
    yield f"## Where the time goes: {bench.name}\n\n{about}. Layout: {layout}.\n"
    with closing(Counters(bench)) as counters:
        for part in _PARTS:
            bench.clean()
            with nullcontext() if part is load.load else separate_cpus(bench.pids):
                yield from _lines(part(bench, counters))


def _lines(parts: Iterable[str]) -> Iterator[str]:
    for part in parts:
        yield f"{part}\n"


if __name__ == "__main__":
    main()
