"""FastStream: one middleware for Kafka, RabbitMQ, NATS and Redis streams that handles each message once."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from typing import Any

from bloomredis.contrib import missing

try:
    from faststream import BaseMiddleware
    from faststream.exceptions import AckMessage
    from faststream.message import SourceType
except ImportError as error:
    raise missing("faststream", "FastStream") from error

__all__ = ["Once"]


class Once:
    """Middleware of a broker: a handler runs for an item that is neither done nor being worked on.

    ::

        broker = KafkaBroker(middlewares=[Once(seen, key=lambda message: message.headers["event-id"])])

    The item is claimed before the handler, held while it runs, committed after it and before the message is
    acknowledged, and given back if the handler raises.  A message whose item is done is acknowledged.  One
    whose item is busy waits for as long as it is.  It is not refused: Kafka's consumer would go back to it,
    but commit its offset along with the next message of another partition.

    :param seen: a filter of `bloomredis.asyncio`.
    :param key: returns the item of a message, or an awaitable of it, as for one that is in the body.  It must
        be in the message: FastStream makes up another `correlation_id` for each delivery that has none.
    :param lease: seconds until the item of a consumer that died is free.
    """

    def __init__(self, seen: Any, *, key: Callable[[Any], Any | Awaitable[Any]], lease: float = 30.0) -> None:
        self._seen = seen
        self._key = key
        self._lease = lease

    def __call__(self, msg: Any, /, *, context: Any) -> BaseMiddleware:
        """Return the middleware of one message, as FastStream asks for it."""
        return _Once(msg, context=context, claim=self._claim)

    async def _claim(self, message: Any) -> Any:
        """Return the claim on a message, once it is done or held."""
        item = self._key(message)
        if inspect.isawaitable(item):
            item = await item
        while True:
            claim = await self._seen.claim(item, self._lease, renew=True)
            if claim.state != "busy":
                return claim
            await asyncio.sleep(claim.remaining)


class _Once(BaseMiddleware):
    """The middleware of one message."""

    def __init__(self, msg: Any, /, *, context: Any, claim: Callable[[Any], Awaitable[Any]]) -> None:
        super().__init__(msg, context=context)
        self._claim = claim

    async def consume_scope(self, call_next: Callable[[Any], Awaitable[Any]], msg: Any) -> Any:
        """Call the handler if the item is new."""
        if msg.source_type is not SourceType.CONSUME:
            return await call_next(msg)
        claim = await self._claim(msg)
        if not claim:
            raise AckMessage
        async with claim:
            try:
                return await call_next(msg)
            except AckMessage as error:  # a handler's way to say that it is done
                end = error
        raise end
