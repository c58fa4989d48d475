"""A program that calls scripts over direct connections: `python -m tests.support.kept_calls PACKAGE SOCKET`.

It prints its observations as JSON, with whichever redis-py or valkey-py it finds.
"""

from __future__ import annotations

import asyncio
import importlib
import inspect
import json
import sys
from typing import Any

import bloomredis
import bloomredis.asyncio
from tests.support.inside import idle
from tests.support.waiting import wait_until

SIZE = {"capacity": 1000, "error_rate": 1e-9}
RENAMED = "_other_{}"
"""A private name in the copy of the package whose names `tests.drivers.test_kept` has changed."""


class Sync:
    """Facts about a synchronous client without retries."""

    def __init__(self, package: str, socket: str) -> None:
        self.module = importlib.import_module(package)
        self.socket = socket
        self.client = self.make()
        self.pool = self.client.connection_pool
        self.filter = bloomredis.BloomFilter(self.client, "sync", **SIZE)  # type: ignore[arg-type]
        self.taken = 0
        take = self.pool.get_connection
        wants_it = inspect.signature(take).parameters["command_name"].default is inspect.Parameter.empty
        self.command = ("_",) if wants_it else ()

        def get_connection(*args: Any, **options: Any) -> Any:
            self.taken += 1
            return take(*args, **options)

        self.pool.get_connection = get_connection
        self.filter.add_many(["warm"])

    def make(self, **options: Any) -> Any:
        """Return a client without retries."""
        kind = getattr(self.module, "Redis", None) or self.module.Valkey
        retry = importlib.import_module(f"{self.module.__name__}.retry").Retry
        pause = importlib.import_module(f"{self.module.__name__}.backoff").NoBackoff()
        return kind(unix_socket_path=self.socket, retry=retry(pause, 0), **options)

    def kept(self) -> object:
        """Calls, of 30, that took a connection by the client's own methods."""
        before = self.taken
        for i in range(10):
            self.filter.add(f"kept {i}")
            assert f"kept {i}" in self.filter
            self.filter.add_many([f"kept {i}", f"many {i}"])
        return self.taken - before

    def answers(self) -> object:
        """The answers of adds and tests."""
        return [self.filter.add("a"), self.filter.add("a"), "a" in self.filter, "b" in self.filter]

    def together(self) -> object:
        """New items of a batch over one server's shards, and connections taken by the client's methods."""
        sharded = bloomredis.ShardedBloomFilter(self.client, "sharded", shards=4, **SIZE)  # type: ignore[arg-type]
        sharded.add_many(range(50))
        before = self.taken
        return [sum(sharded.add_many(range(100))), self.taken - before]

    def closed(self) -> object:
        """The answer after the server has closed the connection."""
        with self.make() as other:
            other.execute_command("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
        return self.filter.add("closed")

    def unread(self) -> object:
        """The answers after another user has left a reply unread on the connection."""
        connection = self.pool.get_connection(*self.command)
        connection.send_command("ECHO", "1")
        wait_until("the reply is there", lambda: connection.can_read(0.1))
        self.pool.release(connection)
        return ["unread" in self.filter, self.filter.add("unread")]

    def interrupted(self) -> object:
        """The answers after an interrupt before the reply was read."""
        kind = self.pool.connection_class
        read = kind.read_response

        def interrupted(*_: Any, **__: Any) -> Any:
            kind.read_response = read
            raise KeyboardInterrupt

        kind.read_response = interrupted
        try:
            self.filter.add("interrupted")
        except KeyboardInterrupt:
            return ["another" in self.filter, self.filter.add("interrupted")]
        return "not interrupted"

    def forgotten(self) -> object:
        """The answers after SCRIPT FLUSH."""
        self.client.script_flush()
        return [self.filter.add("forgotten"), self.filter.add("forgotten")]

    def full(self) -> object:
        """The error while others have all connections of the pool, and the answer afterwards."""
        client = self.make(max_connections=2)
        filter_ = bloomredis.BloomFilter(client, "full", **SIZE)  # type: ignore[arg-type]
        filter_.add("warm")
        taken = [client.connection_pool.get_connection(*self.command) for _ in range(2)]
        try:
            filter_.add("full")
        except bloomredis.BloomError as error:  # its class depends on the version
            for each in taken:
                client.connection_pool.release(each)
            return ["Too many connections" in str(error), filter_.add("full")]
        return "no error"

    def observed(self) -> object:
        """The commands seen by a wrapper that the client gets later."""
        seen = []
        execute = self.client.execute_command

        def wrapper(*args: Any, **options: Any) -> Any:
            seen.append(args[0])
            return execute(*args, **options)

        self.client.execute_command = wrapper
        self.filter.add("observed")
        return seen


class Async:
    """The same facts about an asyncio client."""

    def __init__(self, package: str, socket: str) -> None:
        self.module = importlib.import_module(f"{package}.asyncio")
        kind = getattr(self.module, "Redis", None) or self.module.Valkey
        self.client = kind(unix_socket_path=socket)
        self.pool = self.client.connection_pool
        self.filter = bloomredis.asyncio.BloomFilter(self.client, "async", **SIZE)  # type: ignore[arg-type]
        self.taken = 0
        take = self.pool.get_connection

        async def get_connection(*args: Any, **options: Any) -> Any:
            self.taken += 1
            return await take(*args, **options)

        self.pool.get_connection = get_connection

    async def kept(self) -> object:
        """Calls, of 20, that took a connection by the client's own methods."""
        await self.filter.add("warm")
        before = self.taken
        for i in range(10):
            await self.filter.add(f"kept {i}")
            await self.filter.contains(f"kept {i}")
        return self.taken - before

    async def answers(self) -> object:
        """The answers of tasks that share calls."""
        new = await asyncio.gather(*(self.filter.add(i % 50) for i in range(100)))
        return [sum(new), await self.filter.contains(1), await self.filter.contains(50)]

    async def together(self) -> object:
        """New items of a batch over shards that is larger than a socket's buffer."""
        shards = bloomredis.asyncio.ShardedBloomFilter(
            self.client, "asyncio sharded", capacity=30_000, error_rate=1e-9, shards=8
        )
        await shards.add_many(range(100))
        return sum(await shards.add_many(range(10_000)))

    async def closed(self) -> object:
        """The answer after the server has closed the connection."""
        connections = list(getattr(self.pool, RENAMED.format("available_connections"), ()))
        connections = connections or list(idle(self.pool))
        await self.client.execute_command("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "no")
        for reader in filter(None, (each._reader for each in connections)):  # as redis-py names it
            await asyncio.wait_for(reader.read(), 10)  # until it is closed
        return await self.filter.add("closed")

    async def cancelled(self) -> object:
        """The answers after a cancellation while the reply was in flight."""
        task = asyncio.ensure_future(self.filter.add("cancelled"))
        for _ in range(3):
            await asyncio.sleep(0)
        task.cancel()
        (answer,) = await asyncio.gather(task, return_exceptions=True)
        again = await self.filter.add("cancelled")
        return [await self.filter.contains("another"), again or answer]


async def _run(facts: Async) -> dict[str, object]:
    seen = {
        f"asyncio {each.__name__}": await each()
        for each in (facts.kept, facts.answers, facts.together, facts.closed, facts.cancelled)
    }
    await (getattr(facts.client, "aclose", None) or facts.client.close)()
    return seen


def main() -> None:
    """Print all facts."""
    package, socket = sys.argv[1:]
    facts = Sync(package, socket)
    steps = [facts.kept, facts.answers, facts.together, facts.closed, facts.unread]
    steps += [facts.interrupted, facts.forgotten, facts.full, facts.observed]
    seen = {each.__name__: each() for each in steps}
    sys.stdout.write(json.dumps({**seen, **asyncio.run(_run(Async(package, socket)))}))


if __name__ == "__main__":
    main()
