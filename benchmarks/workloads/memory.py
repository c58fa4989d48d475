"""Memory of a filter on the server, and of `update` and `dedupe` in the client."""

from __future__ import annotations

import resource
import subprocess
import sys
from collections import deque
from pathlib import Path
from typing import Final

import redis

from benchmarks.runner.bench import Bench
from benchmarks.runner.measure import Result
from benchmarks.sides.ours import Ours
from benchmarks.sides.peer import Peer, present
from benchmarks.sides.redisbloom import RedisBloom
from benchmarks.workloads.batch import RATES, short
from benchmarks.workloads.bulk import fill, load
from benchmarks.workloads.items import Generated
from bloomredis import BloomFilter

CLIENT: Final = "peak memory of the client, {} of {:,}"
VERBS: Final = ("load", "dedupe")


def sizes(verb: str, *, quick: bool) -> tuple[int, int]:
    """Return the two numbers of items to compare."""
    if quick:
        return (1_000_000, 3_000_000) if verb == "load" else (100_000, 300_000)
    return 1_000_000, 10_000_000


def server_name(rate: float) -> str:
    """Return the name of the result for the filter's memory on the server."""
    return f"memory of a filter of 1,000,000 on the server, {short(rate)}"


def names(*, quick: bool) -> list[str]:
    """Return the names of all results of this module."""
    return [server_name(rate) for rate in RATES] + [
        CLIENT.format(verb, size) for verb in VERBS for size in sizes(verb, quick=quick)
    ]


def measured(bench: Bench, name: str) -> Result:
    """Measure one of `names`."""
    for rate in RATES:
        if name == server_name(rate):
            return _server(bench, name, rate)
    for verb in VERBS:
        few, many = sizes(verb, quick=bench.quick)
        for size in (few, many):
            if name == CLIENT.format(verb, size):
                return _client(bench, name, verb, size, many)
    raise ValueError(f"no measurement is called {name!r}")


def _server(bench: Bench, name: str, rate: float) -> Result:
    result = Result(name)
    for kind in present(bench, Ours, RedisBloom):
        peer = kind(bench, capacity=1_000_000, error_rate=rate)
        _fill(peer)
        key = peer.filter.name if isinstance(peer, Ours) else peer.key  # type: ignore[attr-defined]  # RedisBloom
        used = bench.client.memory_usage(key, samples=0) or 0
        result.sides[kind.name] = {"memory": [used / 1_000_000]}
        if isinstance(peer, Ours):
            result.sides[kind.name]["memory/bits"] = [used / (peer.filter.info().num_bits / 8)]
    return result


def _fill(peer: Peer) -> None:
    (load if isinstance(peer, Ours) else fill)(peer)(Generated("memory", 1_000_000))


def _client(bench: Bench, name: str, verb: str, size: int, capacity: int) -> Result:
    """Run the verb in a new process, into a filter of the same size each time."""
    bench.filter("memory", capacity=capacity, error_rate=0.01)
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.workloads.memory", bench.server.socket, "memory", verb, str(size)],
        check=True,
        capture_output=True,
        text=True,
    )
    added = BloomFilter.open(bench.client, "memory").info().count
    if not size * 0.98 <= added <= size:
        raise AssertionError(f"{verb} of {size} items added {added}")
    return Result(name, {Ours.name: {"growth": [float(done.stdout)]}})


def _peak() -> int:
    """Return the peak resident memory of this process in bytes."""
    try:  # getrusage would start from the parent's peak
        lines = Path("/proc/self/status").read_text().splitlines()
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM:"))
    except FileNotFoundError:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def _work(path: str, name: str, verb: str, size: int) -> int:
    """Run the verb and return the growth of the process's peak in bytes."""
    ours = BloomFilter.open(redis.Redis(unix_socket_path=path), name)
    before, items = _peak(), Generated(verb, size)
    if verb == "load":
        ours.update(items)
    else:
        deque(ours.dedupe(items), maxlen=0)
    return _peak() - before


if __name__ == "__main__":
    print(_work(sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4])))
