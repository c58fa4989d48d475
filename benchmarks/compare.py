"""Comparison of this checkout with another: `python -m benchmarks.compare /path/to/its/python`.

Each checkout has a worker process with its own interpreter and its own bloomredis; they take turns on one
server, in reversed order in every other round. A second worker of this checkout is the control: its ratio
shows the noise of the run. A ratio is the median of the ratios of single rounds, with its 95% interval (of
order statistics). On a machine with other work the ratio of the client's CPU time is the steadier one.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any, Final

from benchmarks.runner import versions
from benchmarks.runner.bench import Bench, open_bench
from benchmarks.runner.counters import Counters
from benchmarks.runner.cpu_affinity import separate_cpus
from benchmarks.runner.servers import DEFAULT
from benchmarks.runner.worker import COUNTS
from tests.support.servers import binaries

OTHER, OURS, CONTROL = "other checkout", "this checkout", "this checkout again"
_WORKER: Final = Path(__file__).parent / "runner" / "worker.py"
_QUANTITIES: Final = ("wall", "client", "server")
_WARM_UP: Final = 3
Figures = Mapping[str, Mapping[str, Sequence[float]]]


class Worker:
    """The handle of one worker process."""

    def __init__(self, python: str, path: str, tag: str) -> None:
        self._process = subprocess.Popen(
            [python, "-P", str(_WORKER), path, tag],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._about = self._read()

    @property
    def path(self) -> str:
        """The directory of the worker's bloomredis."""
        return str(self._about["path"])

    def __str__(self) -> str:
        return f"{self.path}, Python {self._about['python']}, redis-py {self._about['redis']}"

    def run(self, round_: tuple[str, int]) -> dict[str, Any]:
        """Run a round and return its figures, per item."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(round_) + "\n")
        self._process.stdin.flush()
        return self._read()

    def close(self) -> None:
        """End the process."""
        for stream in (self._process.stdin, self._process.stdout):
            assert stream is not None
            stream.close()
        self._process.wait(timeout=10)

    def _read(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"the worker ended: {self._process.args!r}")
        reply: dict[str, Any] = json.loads(line)
        return reply


def main() -> None:
    """Compare on one server and print a table for each workload."""
    found = binaries()
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.compare", description="This checkout against another one, in turns."
    )
    parser.add_argument("python", help="interpreter of the environment of the other checkout")
    parser.add_argument("--server", default=DEFAULT[0], choices=sorted(found))
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument(
        "--only", nargs="*", default=[""], metavar="TEXT", help=f"workloads: {', '.join(COUNTS)}"
    )
    options = parser.parse_args()
    with (
        open_bench(options.server, found[options.server], quick=False, layout=None) as bench,
        closing(Counters(bench)) as counters,
        separate_cpus(bench.pids),  # workers inherit the client's processors
        ExitStack() as stack,
    ):
        workers = _workers(bench, options.python, stack)
        print(versions.line(versions.machine(), versions.server(bench.client)))
        for name, worker in workers.items():
            print(f"{name}: {worker}")
        for workload in COUNTS:
            if any(text in workload for text in options.only):
                figures = _measured(workers, counters, workload, options.rounds)
                print("\n" + "\n".join(_table(workload, figures)), flush=True)


def _workers(bench: Bench, python: str, stack: ExitStack) -> dict[str, Worker]:
    pythons = {OTHER: python, OURS: sys.executable, CONTROL: sys.executable}
    workers = {
        name: stack.enter_context(closing(Worker(python, bench.server.socket, name)))
        for name, python in pythons.items()
    }
    if workers[OTHER].path == workers[OURS].path:
        raise SystemExit(f"{python} imports bloomredis from this checkout")
    return workers


def _measured(workers: Mapping[str, Worker], counters: Counters, workload: str, rounds: int) -> Figures:
    figures: dict[str, dict[str, list[float]]] = {name: defaultdict(list) for name in workers}
    for round_ in range(-_WARM_UP, rounds):
        names = list(workers)
        for name in reversed(names) if round_ % 2 else names:
            reply, cost = counters.measure(workers[name].run, (workload, round_ + _WARM_UP))
            assert reply["new"] > 0.97, (
                f"{name}, round {round_}: {workload} found only {reply['new']:.1%} new: {reply}"
            )
            if round_ >= 0:
                reply["server"] = cost.cpu / COUNTS[workload]
                for quantity in _QUANTITIES:
                    figures[name][quantity].append(reply[quantity])
    return figures


def _table(workload: str, figures: Figures) -> Iterator[str]:
    heading = f"{workload:<26}{'wall µs':>9}{'client µs':>11}{'server µs':>11}"
    yield f"{heading}   {'ratio of wall time':<24}of the client's CPU time"
    for name, found in figures.items():
        wall, client, server = (statistics.median(found[quantity]) * 1e6 for quantity in _QUANTITIES)
        ratios = [_ratio(found[quantity], figures[OTHER][quantity]) for quantity in ("wall", "client")]
        yield f"  {name:<24}{wall:9.3f}{client:11.3f}{server:11.3f}   {ratios[0]:<24}{ratios[1]}"


def _ratio(own: Sequence[float], other: Sequence[float]) -> str:
    ratios = sorted(a / b for a, b in zip(own, other, strict=True))
    left_out = int(max(0, len(ratios) / 2 - 0.98 * len(ratios) ** 0.5))  # at each end
    low, high = ratios[left_out], ratios[-1 - left_out]
    return f"{statistics.median(ratios):.3f} ({low:.3f} to {high:.3f})"


if __name__ == "__main__":
    main()
