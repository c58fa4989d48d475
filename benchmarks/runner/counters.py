"""Cost of a run: wall time, CPU time of client and server, and the bytes sent."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeVar

from benchmarks.runner.bench import Bench

T = TypeVar("T")

_AWAKE: Final = 30
"""PINGs before each run: an idle processor is slow to answer the first ones."""


@dataclass(frozen=True, slots=True)
class Cost:
    """Cost of one run: wall time, CPU time of the server and of the client, in seconds; bytes sent."""

    wall: float
    cpu: float
    client: float
    sent: float


class Counters:
    """The server's counters, read before and after a run through a connection of their own."""

    def __init__(self, bench: Bench) -> None:
        self._pids = bench.pids
        self._client = bench.server.client()
        self._received()
        self._own = -self._received() + self._received()  # the bytes of one reading itself

    def measure(self, run: Callable[[Any], T], argument: object) -> tuple[T, Cost]:
        """Call `run(argument)` and return its result and its cost."""
        for _ in range(_AWAKE):
            self._client.ping()
        received = self._received()
        cpu = self._cpu()
        busy = time.process_time()
        begin = time.perf_counter()
        answer = run(argument)
        wall = time.perf_counter() - begin
        busy = time.process_time() - busy
        cpu = self._cpu() - cpu
        return answer, Cost(wall, cpu, busy, self._received() - received - self._own)

    def replicated(self) -> int:
        """Return the replication offset: the bytes that replicas were sent so far."""
        offset: int = self._client.info("replication")["master_repl_offset"]
        return offset

    def slowest(self) -> float:
        """Return the seconds of the slowest command since the last call, 0 if the slow log is empty."""
        slow = [entry["duration"] / 1e6 for entry in self._client.slowlog_get(1024)]
        self._client.slowlog_reset()
        return max(slow, default=0.0)

    def close(self) -> None:
        """Close the connection."""
        self._client.close()

    def _received(self) -> int:
        received: int = self._client.info("stats")["total_net_input_bytes"]
        return received

    def _cpu(self) -> float:
        try:
            return sum(map(scheduled, self._pids))
        except FileNotFoundError:  # not on Linux: INFO is less precise
            spent = self._client.info("cpu")
            return float(spent["used_cpu_user"]) + float(spent["used_cpu_sys"])


def scheduled(pid: int) -> float:
    """Return the CPU seconds of all threads of a process, from the scheduler (resolution: 1 ns)."""
    threads = Path(f"/proc/{pid}/task").iterdir()
    return sum(int((thread / "schedstat").read_text().split()[0]) for thread in threads) / 1e9
