"""Shared requests for several servers: each server's requests share calls among themselves."""

from __future__ import annotations

import asyncio
from typing import Any

from bloomredis.drivers.driven import AsyncDriven
from bloomredis.operations.claims.requests import ClaimRequest
from bloomredis.operations.claims.state import ClaimOptions, ClaimState
from bloomredis.protocol.gather import gather
from bloomredis.protocol.steps import Ask, Op, PlainCall
from tests.support.background import PATIENCE


def ping(server: int) -> Ask:
    state = ClaimState.new(None, bytes([server]), ClaimOptions(1000))
    return Ask(ClaimRequest("claim", state))


class _Pings:
    """Operations whose requests send a PING to the server that the item names."""

    name = "seen"

    def server_of(self, encoded: bytes) -> int:
        return encoded[0]

    def attempt_one(self, request: ClaimRequest) -> Op[Any]:
        return (yield PlainCall([("PING",)], server=(request.encoded[0],)))

    def attempt_shared(self, requests: list[ClaimRequest]) -> Op[list[Any]]:
        return gather(map(self.attempt_one, requests))


class _Link:
    """An asyncio client whose server replies once `go` is set."""

    def __init__(self) -> None:
        self.go = asyncio.Event()

    async def execute_command(self, *_: Any, **__: Any) -> bytes:
        await self.go.wait()
        return b"PONG"


def test_a_server_without_an_answer_keeps_no_task_from_another() -> None:
    """A server that does not reply does not delay a call to another server, such as a commit."""

    async def main() -> None:
        links: Any = [_Link(), _Link()]  # as for a sharded filter
        silent, other = links
        other.go.set()
        pinging: Any = AsyncDriven.__new__(AsyncDriven)
        pinging._transport, pinging._operations, pinging._requests = links, _Pings(), {}
        execute = pinging._execute
        waiting = asyncio.ensure_future(execute(links, ping(0)))
        await asyncio.sleep(0)
        assert await asyncio.wait_for(execute(links, ping(1)), PATIENCE) == b"PONG"
        assert not waiting.done()
        silent.go.set()
        assert await waiting == b"PONG"

    asyncio.run(main())
