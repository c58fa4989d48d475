"""Where the time goes: `python -m benchmarks.profile [--layout L] [SERVER…]` prints it as Markdown."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Iterator
from contextlib import closing, nullcontext
from typing import Final

from benchmarks import bench, profile_calls, profile_load, profile_shared, versions
from benchmarks.bench import Bench
from benchmarks.meters import Meter
from benchmarks.placing import apart
from benchmarks.servers import DEFAULT
from tests.support.servers import binaries

_PARTS: Final = (
    profile_calls.one_item,
    profile_calls.batch,
    profile_load.load,
    profile_shared.cached,
    profile_shared.tasks,
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
        with bench.on(name, found[name], quick=options.quick, layout=options.layout) as on:
            for line in _profile(on):
                print(line, flush=True)


def _profile(on: Bench) -> Iterator[str]:
    layout = on.filter("layout", capacity=1000, error_rate=0.01).info().layout
    about = versions.line(versions.machine(), versions.server(on.client))
    yield f"## Where the time goes: {on.name}\n\n{about}. Layout: {layout}.\n"
    with closing(Meter(on)) as meter:
        for part in _PARTS:
            on.clean()
            with nullcontext() if part is profile_load.load else apart(on.pids):
                yield from _lines(part(on, meter))


def _lines(parts: Iterable[str]) -> Iterator[str]:
    for part in parts:
        yield f"{part}\n"


if __name__ == "__main__":
    main()
