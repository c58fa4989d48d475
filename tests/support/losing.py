"""Replies lost after the server has executed the call: by a client, or by a proxy on loopback."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import redis

from tests.support.proxy import Exchange, Proxy


class LosingClient:
    """A client that executes commands and loses the chosen replies."""

    def __init__(self, client: redis.Redis) -> None:
        self.client: Any = client
        self.lose: list[str] = []
        self.sent: list[tuple[Any, ...]] = []

    def execute_command(self, *command: Any, **options: Any) -> Any:
        self.sent.append(command)
        fate = self.lose.pop(0) if self.lose else "answer"
        if fate == "never":
            raise redis.ConnectionError("Connection closed before sending")
        reply = self.client.execute_command(*command, **options)
        if fate == "lost":
            raise redis.ConnectionError("Connection closed by server.")
        return reply

    def pipeline(self, *, transaction: bool) -> Any:
        return self.client.pipeline(transaction=transaction)


class LosingProxy(Proxy):
    """A proxy that loses a share of the replies.

    Before it loses a reply it waits for it, so the request has been executed. Then it closes the client's
    connection, or resets it, in turns.
    """

    def __init__(self, target: str, share: float, seed: int) -> None:
        self.lost = 0
        self.share = share
        self._dice = random.Random(seed)
        super().__init__(target, self.lose_some)

    def lose_some(self, exchange: Exchange) -> bool:
        reply = exchange.execute()
        if self._dice.random() < self.share:
            self.lost += 1
            if self.lost % 2:
                exchange.hang_up()
            return False
        exchange.answer(reply)
        return True


@contextmanager
def losing(target: str, share: float = 0.02, seed: int = 1) -> Iterator[LosingProxy]:
    """Run a proxy in front of the server with the unix socket `target`."""
    proxy = LosingProxy(target, share, seed)
    try:
        yield proxy
    finally:
        proxy.close()
