"""Cost of commands without redis-py: their bytes over a socket, in rounds, and the server's share."""

from __future__ import annotations

import socket
import statistics
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import hiredis
import redis

from benchmarks.runner.bench import Bench
from benchmarks.runner.counters import Counters

Command = tuple[Any, ...]


@dataclass(frozen=True)
class Costs:
    """Medians over the rounds, in seconds per command."""

    wall: float
    cpu: float
    inside: float
    """Time inside the command, as INFO commandstats reports it."""


class Recorder:
    """A stand-in for a client: it passes commands on, or records them and replies itself."""

    def __init__(self, client: redis.Redis) -> None:
        self.pipeline = client.pipeline
        self._client: Any = client
        self._answer: Callable[[Command], object] | None = None
        self.commands: deque[Command] = deque(maxlen=0)

    def execute_command(self, *args: Any, **options: Any) -> Any:
        """Reply to a command, or pass it on."""
        if self._answer is None:
            return self._client.execute_command(*args, **options)
        self.commands.append(args)
        return self._answer(args)

    def __enter__(self) -> Any:
        """Return the client; the library only checks that its type has the method."""
        return self

    def record(self, run: Callable[[], object], answer: Callable[[Command], object]) -> list[Command]:
        """Call `run` with replies from `answer` and return the commands that it sent."""
        self.commands, self._answer = deque(), answer
        try:
            run()
            return list(self.commands)
        finally:
            self.commands, self._answer = deque(maxlen=0), None

    def seconds(self, run: Callable[[], object], answer: Callable[[Command], object], times: int) -> float:
        """Return the seconds of one call of `run` with immediate replies from `answer`."""
        self._answer = answer
        try:
            return seconds(run, times)
        finally:
            self._answer = None


def seconds(run: Callable[[], object], times: int, repeats: int = 7) -> float:
    """Return the seconds of one call: the median of several loops."""
    found = []
    for _ in range(repeats):
        begin = time.perf_counter()
        for _ in range(times):
            run()
        found.append((time.perf_counter() - begin) / times)
    return statistics.median(found)


def packed(client: redis.Redis, command: Command) -> bytes:
    """Return a command's bytes as redis-py packs them."""
    connection: Any = client.connection_pool.get_connection()
    try:
        return b"".join(connection.pack_command(*command))
    finally:
        client.connection_pool.release(connection)


def compared(
    bench: Bench, counters: Counters, sides: Mapping[str, Callable[[int], Iterable[Command]]], rounds: int
) -> dict[str, Costs]:
    """Send the commands of each side one by one, in turns; a side returns the commands of a round."""
    found: dict[str, list[Costs]] = {name: [] for name in sides}
    with socket.socket(socket.AF_UNIX) as server:
        server.connect(bench.server.socket)
        for round_ in range(-1, rounds):
            for name, commands in sides.items():
                prepared = list(commands(round_ + 1))
                data = [packed(bench.client, command) for command in prepared]
                bench.client.config_resetstat()
                _, cost = counters.measure(lambda data: _exchange(server, data), data)
                if round_ >= 0:
                    inside = _inside(bench.client, prepared[0][0])
                    found[name].append(Costs(cost.wall / len(data), cost.cpu / len(data), inside))
    return {name: _median(costs) for name, costs in found.items()}


def _exchange(server: socket.socket, data: Sequence[bytes]) -> None:
    reader = hiredis.Reader()
    for command in data:
        server.sendall(command)
        while (reply := reader.gets()) is False:
            reader.feed(server.recv(1 << 18))
        if isinstance(reply, Exception):
            raise reply


def _inside(client: redis.Redis, verb: str) -> float:
    measured: float = client.info("commandstats")[f"cmdstat_{verb.lower()}"]["usec_per_call"]
    return measured / 1e6


def _median(costs: Sequence[Costs]) -> Costs:
    return Costs(
        statistics.median(cost.wall for cost in costs),
        statistics.median(cost.cpu for cost in costs),
        statistics.median(cost.inside for cost in costs),
    )
