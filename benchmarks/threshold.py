"""Break-even density of a load: the number of items from which a whole segment is cheaper."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import closing
from functools import partial
from typing import Any, Final

from benchmarks.runner.bench import Bench, open_bench
from benchmarks.runner.counters import Counters
from benchmarks.runner.measure import Answers, Measurement, Result, Side, Workload
from benchmarks.runner.servers import DEFAULT
from benchmarks.sides.ours import Ours
from benchmarks.sides.peer import CAPACITY
from benchmarks.workloads.items import strings
from bloomredis.operations.whole import loading
from tests.support.servers import binaries

_SIDES: Final = {"probes": sys.maxsize, "segments": 0}
_HEAD: Final = "items a segment   µs an item: probes  segments   server: probes  segments"


def main() -> None:
    """Load batches of several densities both ways, on the servers named."""
    for name in sys.argv[1:] or DEFAULT:
        with (
            open_bench(name, binaries()[name], quick=False, layout=None) as bench,
            closing(Counters(bench)) as counters,
        ):
            filter_ = bench.filter("layout", capacity=CAPACITY, error_rate=0.01).info()
            segments = -(-filter_.num_bits // (8 * loading.SEGMENT_BYTES))
            print(f"\n{name}, {filter_.layout}, k = {filter_.num_hashes}\n{_HEAD}")
            for density in (100, 200, 400, 800, 1600, 3200):
                print(_line(density, _measured(bench, counters, density * segments)), flush=True)


def _measured(bench: Bench, counters: Counters, items: int) -> Result:
    bench.clean()
    workload = Workload(name="", items=partial(strings, "dense", count=items), sides=_sides, rounds=9)
    measurement = Measurement(workload, bench, counters)
    measurement.warm_up()
    measurement.time()
    return measurement.result


def _sides(bench: Bench) -> Iterator[Side]:
    for name, threshold in _SIDES.items():
        yield Side(name=name, run=partial(_run, Ours(bench, suffix=name), threshold))


def _run(ours: Ours, threshold: int, items: Any) -> Answers:
    kept = loading.DENSE
    setattr(loading, "DENSE", threshold)  # noqa: B010 - otherwise a constant
    try:
        ours.filter.update(items)
    finally:
        setattr(loading, "DENSE", kept)  # noqa: B010
    return None


def _line(density: int, result: Result) -> str:
    figures = [result.median(side, quantity) * 1e6 for quantity in ("wall", "cpu") for side in _SIDES]
    return f"{density:>15}   {figures[0]:18.2f}  {figures[1]:8.2f}   {figures[2]:14.2f}  {figures[3]:8.2f}"


if __name__ == "__main__":
    main()
