"""A race of processes over one stream and one filter, in which no two workers may get the same click.

The processes are spawned, so that they share only the server.
"""

from __future__ import annotations

import math
import multiprocessing
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any, TypeAlias

from bloomredis import BloomError, BloomFilter
from bloomredis.bits.arrays import NDArray, np
from bloomredis.cli.server import connect

Clicks: TypeAlias = "NDArray[np.int64]"

FIRST_SHARE = 0.7  # of the events; the others are redeliveries
AT_ONCE_SHARE = 0.3  # of the redeliveries: another worker has the same click at the same time
LONGEST_GAP = 100_000  # clicks between a delivery and its redelivery; log-uniform
BATCH = 100


class RaceError(BloomError):
    """A worker ended early, or a click was processed twice."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Race:
    """The parameters of a race, for every worker."""

    url: str
    name: str
    capacity: int
    error_rate: float
    events: int
    workers: int
    seed: int
    cluster: bool = False

    def filter(self, client: Any) -> BloomFilter:
        """Return the shared filter; without receipts, since no call is sent twice."""
        return BloomFilter(
            client, self.name, capacity=self.capacity, error_rate=self.error_rate, retry_safe=False
        )


@dataclass(frozen=True, slots=True)
class Result:
    """Numbers of clicks that one, several and no workers processed, and the duration of the race."""

    once: int
    twice: int
    missed: int
    seconds: float


def stream(events: int, seed: int) -> Clicks:
    """Return the click of each event: 0, 1, 2, ... in order, with redeliveries of earlier ones between."""
    random = np.random.default_rng(seed)
    first = random.random(events) < FIRST_SHARE
    first[:1] = True
    sent = np.cumsum(first)
    gaps = np.exp(random.uniform(0, math.log(LONGEST_GAP), events)).astype(np.int64)
    gaps[random.random(events) < AT_ONCE_SHARE] = 1
    return np.where(first, sent, np.maximum(sent - gaps + 1, 1)) - 1


def run(race: Race) -> Result:
    """Let the workers race, and count the clicks.  Raises `RaceError` if a worker does not answer."""
    with _workers(race) as connections:
        for connection in connections:
            _receive(connection)
        started = time.perf_counter()
        for connection in connections:
            connection.send(None)
        processed = np.concatenate([_receive(connection) for connection in connections])
        seconds = time.perf_counter() - started
    times = np.bincount(processed, minlength=race.capacity)
    return Result(int((times == 1).sum()), int((times > 1).sum()), int((times == 0).sum()), seconds)


@contextmanager
def _workers(race: Race) -> Iterator[list[Connection]]:
    """Start the workers; kill them at the end of the block."""
    context = multiprocessing.get_context("spawn")
    pipes = [context.Pipe() for _ in range(race.workers)]
    processes = [
        context.Process(target=work, args=(theirs, race, index), daemon=True)
        for index, (_, theirs) in enumerate(pipes)
    ]
    try:
        for process, (_, theirs) in zip(processes, pipes, strict=True):
            _start(process)
            theirs.close()  # so that a dead worker means an end of file
        yield [ours for ours, _ in pipes]
    finally:
        for process in processes:
            if process.pid is not None:
                process.kill()
                process.join()


def _start(process: multiprocessing.process.BaseProcess) -> None:
    """Start a process that ignores Ctrl-C; this process handles it and kills the other."""
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        process.start()
    finally:
        signal.signal(signal.SIGINT, before)


def _receive(connection: Connection) -> Clicks:
    try:
        answer: Clicks | str = connection.recv()
    except EOFError:
        raise RaceError("a worker process ended before its work was done") from None
    if isinstance(answer, str):
        raise RaceError(f"a worker failed: {answer}")
    return answer


def work(connection: Connection, race: Race, index: int) -> None:
    """Report when ready, wait for the start, and send the clicks that were new for this worker."""
    try:
        seen = race.filter(connect(race.url, cluster=race.cluster))
        seen.create()
        clicks = stream(race.events, race.seed)[index :: race.workers]
        connection.send(clicks[:0])
        connection.recv()
        connection.send(_process(seen, clicks, race.seed))
    except Exception as error:
        connection.send(f"{type(error).__name__}: {error}")


def _process(seen: BloomFilter, clicks: Clicks, seed: int) -> Clicks:
    new = np.zeros(len(clicks), dtype=bool)
    for start in range(0, len(clicks), BATCH):
        batch = clicks[start : start + BATCH].tolist()
        new[start : start + BATCH] = seen.add_many([f"click-{seed}-{click}" for click in batch])
    return clicks[new]
