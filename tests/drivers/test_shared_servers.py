"""Shared calls for several servers: each server's calls share round trips among themselves."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

from bloomredis.drivers.sharing import tasks, threads
from bloomredis.protocol.steps import Call, PlainCall
from tests.support.background import PATIENCE, started


def ping(server: int) -> Call:
    return PlainCall([("PING",)], server=(server,))


class _Link:
    """A synchronous client whose server replies once `go` is set."""

    def __init__(self) -> None:
        self.asked, self.go = threading.Event(), threading.Event()

    def execute_command(self, *_: Any, **__: Any) -> bytes:
        self.asked.set()
        assert self.go.wait(PATIENCE)
        return b"PONG"


class _AsyncLink:
    """The same for asyncio."""

    def __init__(self) -> None:
        self.go = asyncio.Event()

    async def execute_command(self, *_: Any, **__: Any) -> bytes:
        await self.go.wait()
        return b"PONG"


def test_a_server_without_an_answer_keeps_no_task_from_another() -> None:
    """A server that does not reply does not delay a call to another server, such as a commit."""

    async def main() -> None:
        links: Any = [_AsyncLink(), _AsyncLink()]  # as for a sharded filter
        silent, other = links
        other.go.set()
        execute = tasks.sharing_calls("seen", links).execute
        waiting = asyncio.ensure_future(execute(links, ping(0)))
        await asyncio.sleep(0)
        assert await asyncio.wait_for(execute(links, ping(1)), PATIENCE) == b"PONG"
        assert not waiting.done()
        silent.go.set()
        assert await waiting == b"PONG"

    asyncio.run(main())


def test_a_server_without_an_answer_keeps_no_thread_from_another() -> None:
    """The same holds for threads."""
    links: Any = [_Link(), _Link()]  # as for a sharded filter
    silent, other = links
    other.go.set()
    execute = threads.sharing_calls(links).execute
    waiting = started(lambda: execute(links, ping(0)))
    assert silent.asked.wait(PATIENCE)
    assert started(lambda: execute(links, ping(1))).result(PATIENCE) == b"PONG"
    assert not waiting.done()
    silent.go.set()
    assert waiting.result(PATIENCE) == b"PONG"
