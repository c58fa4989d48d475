"""Cost of a run: wall time, CPU time of client and servers, the bytes sent, and the machine's floor."""

from __future__ import annotations

import socket
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeVar

from benchmarks.runner.bench import Bench
from benchmarks.runner.latency_probe import ping

T = TypeVar("T")

_AWAKE: Final = 30
"""PINGs before each run: an idle processor is slow to answer the first ones."""


@dataclass(frozen=True, slots=True)
class Cost:
    """Cost of one run in seconds, and the bytes sent.

    `cpu` is the CPU time of all servers of the side, `busiest` that of the busiest server, `client` that of
    this process. `floor` is the median time of the PINGs over a bare socket before the run.
    """

    wall: float
    cpu: float
    busiest: float
    client: float
    sent: float
    floor: float


class Counters:
    """The server's counters, read before and after a run through a separate connection."""

    def __init__(self, bench: Bench) -> None:
        self._pids = bench.pids
        self._client = bench.server.client()
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.connect(bench.server.socket)
        self._received()
        self._own = -self._received() + self._received()  # the bytes of one reading itself

    def measure(self, run: Callable[[Any], T], argument: object, pids: Sequence[int] = ()) -> tuple[T, Cost]:
        """Call `run(argument)` and return its result and its cost.

        `pids`: the processes of its servers, if not the bench's.
        """
        floor = statistics.median([ping(self._socket) for _ in range(_AWAKE)])
        received = self._received()
        before = self._cpu(pids)
        busy = time.process_time()
        begin = time.perf_counter()
        answer = run(argument)
        wall = time.perf_counter() - begin
        busy = time.process_time() - busy
        cpu = [now - earlier for now, earlier in zip(self._cpu(pids), before, strict=True)]
        sent = self._received() - received - self._own
        return answer, Cost(wall, sum(cpu), max(cpu), busy, sent, floor)

    def replicated(self) -> int:
        """Return the replication offset: the number of bytes sent to replicas so far."""
        offset: int = self._client.info("replication")["master_repl_offset"]
        return offset

    def slowest(self) -> float:
        """Return the seconds of the slowest command since the last call, 0 if the slow log is empty."""
        slow = [entry["duration"] / 1e6 for entry in self._client.slowlog_get(1024)]
        self._client.slowlog_reset()
        return max(slow, default=0.0)

    def close(self) -> None:
        """Close the connections."""
        self._client.close()
        self._socket.close()

    def _received(self) -> int:
        received: int = self._client.info("stats")["total_net_input_bytes"]
        return received

    def _cpu(self, pids: Sequence[int]) -> list[float]:
        try:
            return [_scheduled(pid) for pid in pids or self._pids]
        except FileNotFoundError:  # not on Linux: INFO is less precise
            spent = self._client.info("cpu")
            return [float(spent["used_cpu_user"]) + float(spent["used_cpu_sys"])]


def _scheduled(pid: int) -> float:
    """Return the CPU seconds of all threads of a process, from the scheduler (resolution: 1 ns)."""
    threads = Path(f"/proc/{pid}/task").iterdir()
    return sum(int((thread / "schedstat").read_text().split()[0]) for thread in threads) / 1e9
