"""A client whose process dies, as its filters see it."""

from __future__ import annotations

from typing import Any

import redis


class Died(BaseException):
    """The process has died."""


class MortalClient:
    """A client that makes that many round trips and dies before the next one."""

    def __init__(self, client: redis.Redis, left: int) -> None:
        self._client: Any = client
        self._left = left

    def _live(self) -> None:
        if self._left == 0:
            raise Died
        self._left -= 1

    def execute_command(self, *command: Any, **options: Any) -> Any:
        self._live()
        return self._client.execute_command(*command, **options)

    def pipeline(self, *, transaction: bool) -> Any:
        self._live()
        return self._client.pipeline(transaction=transaction)
