"""What a run costs: wall time, processor time of client and server, and the bytes that were sent."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeVar

from benchmarks.bench import Bench

T = TypeVar("T")

_AWAKE: Final = 30
"""PINGs before each run: a processor that has slept for a while answers the first ones late."""


@dataclass(frozen=True, slots=True)
class Cost:
    """What one run took: seconds, seconds of the server's and of the client's processors, bytes sent."""

    wall: float
    cpu: float
    client: float
    sent: float


class Meter:
    """Reads the server's counters through a connection of its own, before and after a run."""

    def __init__(self, bench: Bench) -> None:
        self._pids = bench.pids
        self._client = bench.server.client()
        self._received()
        self._own = -self._received() + self._received()  # what one reading adds itself

    def of(self, run: Callable[[Any], T], argument: object) -> tuple[T, Cost]:
        """Run something and return its answer and what it took."""
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
        """Return how many bytes replicas were sent so far."""
        offset: int = self._client.info("replication")["master_repl_offset"]
        return offset

    def slowest(self) -> float:
        """Return the seconds of the slowest command since the last call, 0 if none was in the slow log."""
        slow = [entry["duration"] / 1e6 for entry in self._client.slowlog_get(1024)]
        self._client.slowlog_reset()
        return max(slow, default=0.0)

    def close(self) -> None:
        """Give the connection back."""
        self._client.close()

    def _received(self) -> int:
        received: int = self._client.info("stats")["total_net_input_bytes"]
        return received

    def _cpu(self) -> float:
        try:
            return sum(map(scheduled, self._pids))
        except FileNotFoundError:  # no Linux: the server says it less exactly
            spent = self._client.info("cpu")
            return float(spent["used_cpu_user"]) + float(spent["used_cpu_sys"])


def scheduled(pid: int) -> float:
    """Return the seconds that all threads of a process have run: to the nanosecond, by the scheduler."""
    threads = Path(f"/proc/{pid}/task").iterdir()
    return sum(int((thread / "schedstat").read_text().split()[0]) for thread in threads) / 1e9
