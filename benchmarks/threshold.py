"""How dense a segment must be to be cheaper as a whole than probe by probe."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import closing
from functools import partial
from typing import Any

from benchmarks import bench
from benchmarks.bench import Bench
from benchmarks.items import strings
from benchmarks.measure import Answers, Measuring, Result, Side, Workload
from benchmarks.meters import Meter
from benchmarks.peers import CAPACITY, Ours
from benchmarks.servers import DEFAULT
from bloomredis import bulk
from tests.servers import binaries

_SIDES = {"probes": sys.maxsize, "segments": 0}


def main() -> None:
    """Load batches of several densities both ways, on the servers named."""
    for name in sys.argv[1:] or DEFAULT:
        with bench.on(name, binaries()[name], quick=False, layout=None) as on, closing(Meter(on)) as meter:
            filter_ = on.filter("layout", capacity=CAPACITY, error_rate=0.01).info()
            segments = -(-filter_.num_bits // (8 * bulk.SEGMENT_BYTES))
            print(f"\n{name}, {filter_.layout}: the library goes by {bulk.DENSE} probes a segment")
            print("probes a segment   µs an item: probes  segments   server: probes  segments")
            for density in (512, 1024, 2048, 4096, 8192, 16384):
                print(
                    _line(density, _measured(on, meter, density * segments // filter_.num_hashes)), flush=True
                )


def _measured(on: Bench, meter: Meter, items: int) -> Result:
    on.clean()
    workload = Workload(name="", items=partial(strings, "dense", count=items), sides=_sides, rounds=9)
    measuring = Measuring(workload, on, meter)
    measuring.warm_up()
    measuring.time()
    return measuring.result


def _sides(on: Bench) -> Iterator[Side]:
    for name, dense in _SIDES.items():
        yield Side(name=name, run=partial(_load, Ours(on, suffix=name), dense))


def _load(mine: Ours, dense: int, items: Any) -> Answers:
    kept = bulk.DENSE
    setattr(bulk, "DENSE", dense)  # noqa: B010 - it is a constant for everybody else
    try:
        mine.filter.load(items)
    finally:
        setattr(bulk, "DENSE", kept)  # noqa: B010
    return None


def _line(density: int, result: Result) -> str:
    figures = [result.median(side, quantity) * 1e6 for quantity in ("wall", "cpu") for side in _SIDES]
    return f"{density:>16}   {figures[0]:18.2f}  {figures[1]:8.2f}   {figures[2]:14.2f}  {figures[3]:8.2f}"


if __name__ == "__main__":
    main()
