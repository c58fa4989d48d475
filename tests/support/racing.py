"""Races: the answers of many workers for the same items."""

from __future__ import annotations

import multiprocessing
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import redis

PROCESSES = multiprocessing.get_context("forkserver")
"""Makes processes that share nothing with this one, from one with all imports done."""

PROCESSES.set_forkserver_preload(["bloomredis", "pytest", __name__])


def winners(told: Sequence[Sequence[bool]], items: Sequence[str]) -> Counter[int]:
    """Return how many items had how many winners; `told` has a list of answers for each worker."""
    wins = Counter(item for answers in told for item, won in zip(items, answers, strict=True) if won)
    return Counter(wins[item] for item in items)


def race_processes(
    work: Callable[[str, Sequence[str], int], list[bool]], url: str, items: Sequence[str], workers: int
) -> list[list[bool]]:
    """Run `work(url, items, worker)` in processes that start together; return the answers of each."""
    barrier = PROCESSES.Barrier(workers)
    with PROCESSES.Pool(workers, initializer=_remember, initargs=(barrier,)) as pool:
        return pool.starmap(_together, [(work, url, items, worker) for worker in range(workers)], chunksize=1)


def race_threads(work: Callable[[int], list[bool]], workers: int) -> list[list[bool]]:
    """Run `work(worker)` in threads that start together; return the answers of each."""
    barrier = threading.Barrier(workers)
    told: list[list[bool]] = [[] for _ in range(workers)]

    def run(worker: int) -> None:
        barrier.wait(60)
        told[worker] = work(worker)

    threads = [threading.Thread(target=run, args=(worker,)) for worker in range(workers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return told


@contextmanager
def flushing_scripts(client: redis.Redis) -> Iterator[Callable[[], int]]:
    """Run SCRIPT FLUSH in a loop during the block; the value counts how often it ran."""
    stop = threading.Event()
    done = [0]

    def loop() -> None:
        while not stop.wait(0.001):
            client.script_flush()
            done[0] += 1

    thread = threading.Thread(target=loop)
    thread.start()
    try:
        yield lambda: done[0]
    finally:
        stop.set()
        thread.join()


_barrier: list[threading.Barrier] = []


def _remember(barrier: threading.Barrier) -> None:
    _barrier.append(barrier)


def _together(
    work: Callable[[str, Sequence[str], int], list[bool]], url: str, items: Sequence[str], worker: int
) -> list[bool]:
    _barrier[0].wait(60)
    return work(url, items, worker)
