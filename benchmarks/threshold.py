"""How dense a segment must be to be cheaper as a whole than probe by probe, for `load` and for `add_many`."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from benchmarks import bench
from benchmarks.bench import Bench
from benchmarks.items import strings
from benchmarks.measure import Answers, Measuring, Result, Side, Workload
from benchmarks.meters import Meter
from benchmarks.peers import CAPACITY, Ours
from benchmarks.servers import DEFAULT
from bloomredis import bulk, dense
from tests.servers import binaries

_SIDES: Final = {"probes": sys.maxsize, "segments": 0}
_HEAD: Final = "items a segment   µs an item: probes  segments   server: probes  segments"


@dataclass(frozen=True)
class Call:
    """A call that chooses between the two ways."""

    name: str
    make: Callable[[Ours, Any], Answers]
    known: int = 0  # of twenty items, those that are in already


def _load(mine: Ours, items: Any) -> Answers:
    mine.filter.load(items)
    return None


CALLS: Final = (
    Call("load", _load),
    Call("add_many, all new", Ours.add_many),
    Call("add_many, one of twenty new", Ours.add_many, 19),
    Call("add_many, none new", Ours.add_many, 20),
)


def main() -> None:
    """Make each call with batches of several densities both ways, on the servers named."""
    for name in sys.argv[1:] or DEFAULT:
        with bench.on(name, binaries()[name], quick=False, layout=None) as on, closing(Meter(on)) as meter:
            filter_ = on.filter("layout", capacity=CAPACITY, error_rate=0.01).info()
            segments = -(-filter_.num_bits // (8 * bulk.SEGMENT_BYTES))
            for call in CALLS:
                print(f"\n{name}, {filter_.layout}, k = {filter_.num_hashes}: {call.name}\n{_HEAD}")
                for density in (100, 200, 400, 800, 1600, 3200):
                    print(_line(density, _measured(on, meter, call, density * segments)), flush=True)


def _measured(on: Bench, meter: Meter, call: Call, items: int) -> Result:
    on.clean()
    sides = partial(_sides, call=call)
    workload = Workload(name="", items=partial(strings, "dense", count=items), sides=sides, rounds=9)
    measuring = Measuring(workload, on, meter)
    measuring.warm_up()
    measuring.time()
    return measuring.result


def _sides(on: Bench, call: Call) -> Iterator[Side]:
    for name, threshold in _SIDES.items():
        mine = Ours(on, suffix=name)
        yield Side(
            name=name, run=partial(_run, call, mine, threshold), prepare=partial(_prepare, call.known, mine)
        )


def _prepare(known: int, mine: Ours, items: Any) -> None:
    mine.add_many([item for i, item in enumerate(items) if i % 20 < known])


def _run(call: Call, mine: Ours, threshold: int, items: Any) -> Answers:
    kept = {module: module.DENSE for module in (bulk, dense)}
    for module in kept:
        setattr(module, "DENSE", threshold)  # noqa: B010 - it is a constant for everybody else
    try:
        return call.make(mine, items)
    finally:
        for module, value in kept.items():
            setattr(module, "DENSE", value)  # noqa: B010


def _line(density: int, result: Result) -> str:
    figures = [result.median(side, quantity) * 1e6 for quantity in ("wall", "cpu") for side in _SIDES]
    return f"{density:>15}   {figures[0]:18.2f}  {figures[1]:8.2f}   {figures[2]:14.2f}  {figures[3]:8.2f}"


if __name__ == "__main__":
    main()
