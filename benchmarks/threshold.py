"""Break-even density of a load: from how many items on a segment is cheaper sent whole."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import closing
from functools import partial
from typing import Any, Final

from benchmarks import bench
from benchmarks.bench import Bench
from benchmarks.items import strings
from benchmarks.measure import Answers, Measuring, Result, Side, Workload
from benchmarks.meters import Meter
from benchmarks.peers import CAPACITY, Ours
from benchmarks.servers import DEFAULT
from bloomredis.operations import loading
from tests.support.servers import binaries

_SIDES: Final = {"probes": sys.maxsize, "segments": 0}
_HEAD: Final = "items a segment   µs an item: probes  segments   server: probes  segments"


def main() -> None:
    """Load batches of several densities both ways, on the servers named."""
    for name in sys.argv[1:] or DEFAULT:
        with bench.on(name, binaries()[name], quick=False, layout=None) as on, closing(Meter(on)) as meter:
            filter_ = on.filter("layout", capacity=CAPACITY, error_rate=0.01).info()
            segments = -(-filter_.num_bits // (8 * loading.SEGMENT_BYTES))
            print(f"\n{name}, {filter_.layout}, k = {filter_.num_hashes}\n{_HEAD}")
            for density in (100, 200, 400, 800, 1600, 3200):
                print(_line(density, _measured(on, meter, density * segments)), flush=True)


def _measured(on: Bench, meter: Meter, items: int) -> Result:
    on.clean()
    workload = Workload(name="", items=partial(strings, "dense", count=items), sides=_sides, rounds=9)
    measuring = Measuring(workload, on, meter)
    measuring.warm_up()
    measuring.time()
    return measuring.result


def _sides(on: Bench) -> Iterator[Side]:
    for name, threshold in _SIDES.items():
        yield Side(name=name, run=partial(_run, Ours(on, suffix=name), threshold))


def _run(mine: Ours, threshold: int, items: Any) -> Answers:
    kept = loading.DENSE
    setattr(loading, "DENSE", threshold)  # noqa: B010 - it is a constant for everybody else
    try:
        mine.filter.load(items)
    finally:
        setattr(loading, "DENSE", kept)  # noqa: B010
    return None


def _line(density: int, result: Result) -> str:
    figures = [result.median(side, quantity) * 1e6 for quantity in ("wall", "cpu") for side in _SIDES]
    return f"{density:>15}   {figures[0]:18.2f}  {figures[1]:8.2f}   {figures[2]:14.2f}  {figures[3]:8.2f}"


if __name__ == "__main__":
    main()
