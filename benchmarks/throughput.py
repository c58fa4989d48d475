"""Calls of each verb that one server takes a second: ``python -m benchmarks.throughput`` stores them.

The calls are about new items, one each, and arrive over several connections at once.  A figure is the
server's processor time for such a call: the script, and reading, parsing and answering it.  docs/speed.md
shows the stored figures (``python -m benchmarks.report``).
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from typing import Any, Final

import redis

from benchmarks.report.pages import THROUGHPUT
from benchmarks.runner import versions
from benchmarks.scripts import KINDS, VERBS, Calls
from bloomredis.protocol import scripts
from tests.support.servers import IN_MEMORY, binaries, module_options, running

SERVERS: Final = ("redis-8", "valkey-9")
_CONNECTIONS: Final = 16
_CALLS: Final = 30 * _CONNECTIONS
_ROUNDS: Final = 15


def processor_time(client: redis.Redis) -> float:
    """Return the seconds of processor time that a server has used."""
    found: Any = client.info("cpu")
    return float(found["used_cpu_user"]) + float(found["used_cpu_sys"])


def send(connections: Sequence[Any], commands: Sequence[Sequence[Any]]) -> None:
    """Send commands, as many at once as there are connections."""
    for start in range(0, len(commands), len(connections)):
        group = list(zip(connections, commands[start : start + len(connections)], strict=False))
        for connection, command in group:
            connection.send_command(*command)
        for connection, _ in group:
            connection.read_response()


def measured(calls: Calls, verb: str, connections: Sequence[Any]) -> float | None:
    """Return the microseconds of the server's processor for a call; None if the filter has no such verb."""
    texts = calls.texts(verb)
    if texts is None:
        return None
    client, sha = calls.client, calls.client.script_load(texts[1])
    claim = client.script_load(scripts.load_script("claim", variant=calls.handle.script_variant).text)
    times = []
    for _ in range(_ROUNDS):
        batches = [calls.drawn_items() for _ in range(_CALLS)]
        if verb in ("commit", "extend"):
            send(connections, [("EVALSHA", claim, *calls.claim(items)) for items in batches])
        if verb == "remove":
            calls.of.add_many([item for items in batches for item in items])
        commands = [("EVALSHA", sha, *getattr(calls, verb)(items)) for items in batches]
        before = processor_time(client)
        send(connections, commands)
        times.append((processor_time(client) - before) / _CALLS)
    return round(statistics.median(times) * 1e6, 2)


def measure(client: redis.Redis) -> Iterator[tuple[str, dict[str, float]]]:
    """Yield each kind of filter that the server has, with the microseconds of a call by verb."""
    with ExitStack() as stack:
        connections = [client.connection_pool.make_connection() for _ in range(_CONNECTIONS)]
        for connection in connections:
            stack.callback(connection.disconnect)
        for kind, make in KINDS.items():
            try:
                calls = Calls(client, make(client), items=1, lanes=_CONNECTIONS)
            except Exception as error:
                print(f"{kind} is left out: {error}")
                continue
            found = {verb: measured(calls, verb, connections) for verb in VERBS}
            yield kind, {verb: time for verb, time in found.items() if time is not None}
            client.flushdb()


def main() -> None:
    """Measure on each server; store the figures, and print them."""
    servers = {}
    for name in SERVERS:
        binary = binaries()[name]
        with running(binary, *IN_MEMORY, *module_options(binary)) as server, server.client() as client:
            about = versions.server(client)["server"]
            servers[about] = dict(measure(client))
        for kind, times in servers[about].items():
            print(about, kind, times)
    THROUGHPUT.write_text(json.dumps({"machine": versions.machine(), "servers": servers}, indent=1) + "\n")


if __name__ == "__main__":
    main()
