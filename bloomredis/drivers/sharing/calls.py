"""Calls of tasks that share round trips: each stays a call of its own, with its own answer or error."""

from __future__ import annotations

import asyncio
from typing import Any

from bloomredis.drivers.aio import drive, execute_step
from bloomredis.drivers.sharing.batch import Own, copied
from bloomredis.drivers.sharing.tasks import Coalescer, abandon
from bloomredis.protocol.merging import make_all
from bloomredis.protocol.steps import Call, Step


class SharedCalls:
    """Executes the steps of a filter's operations; calls that find others under way leave together."""

    def __init__(self, name: str, client: Any) -> None:
        self._client = client
        self._calls = Coalescer(
            name, lambda _, asked: drive(client, make_all([each.call for each in asked]), execute_step)
        )

    async def execute(self, client: Any, step: Step) -> Any:
        """Execute a step; return the answer to it."""
        if not (isinstance(step, Call) and step.is_single):  # WAIT keeps a connection busy
            return await execute_step(client, step)
        own = Own(step)
        waiting = self._calls.join(own)
        if waiting is None:
            return await self._calls.alone(own, execute_step(client, step))
        try:
            answer = (await waiting)[0]
        except (asyncio.CancelledError, GeneratorExit):
            abandon(waiting, own)
            raise
        if isinstance(answer, Exception):
            raise copied(answer)  # several tasks raise it
        return answer
