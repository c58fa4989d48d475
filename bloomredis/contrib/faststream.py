"""FastStream: a middleware for Kafka, RabbitMQ, NATS and Redis streams; a handler runs once for each item."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from typing import Any

from bloomredis import BloomError
from bloomredis.contrib import missing
from bloomredis.contrib._patience import PAUSE, may_pass
from bloomredis.contrib._warnings import Warnings

try:
    from faststream import BaseMiddleware
    from faststream.exceptions import AckMessage
    from faststream.message import SourceType
except ImportError as error:
    raise missing("faststream", "FastStream") from error

__all__ = ["Once"]


class Once:
    """A middleware of a broker: a handler runs if its item is neither done nor held by another consumer.

    ::

        broker = KafkaBroker(middlewares=[Once(seen, key=lambda message: message.headers["event-id"])])

    The item is claimed before the handler, and the claim is extended while the handler runs.  The item is
    committed after the handler's result is published and before the message is acknowledged; if one of them
    fails, the item is given back.  If the item is done, the message is acknowledged.

    A message whose item is busy waits until the claim on it ends, and every message waits while the filter's
    server is away.  A message that waits is not refused, because Kafka's consumer would go back to a refused
    message, but commit its offset along with the next message of another partition.

    :param seen: a filter of `bloomredis.asyncio`.
    :param key: takes a message and returns its item, or an awaitable of it (for an item in the body).  The
        item must be part of the message: if a message has no `correlation_id`, FastStream generates a
        different one at each delivery.
    :param lease: a dead consumer's item is free after so many seconds.
    """

    def __init__(self, seen: Any, *, key: Callable[[Any], Any | Awaitable[Any]], lease: float = 30.0) -> None:
        self._seen = seen
        self._key = key
        self._lease = lease
        self._warnings = Warnings()

    def __call__(self, msg: Any, /, *, context: Any) -> BaseMiddleware:
        """Return the middleware of one message."""
        return _Once(msg, context=context, claim=self._claim)

    async def _claim(self, message: Any) -> Any:
        """Return the claim on the item of a message, once this consumer holds it or it is done."""
        item = self._key(message)
        if inspect.isawaitable(item):
            item = await item
        while True:
            try:
                claim = await self._seen.claim(item, self._lease, renew=True)
            except BloomError as error:
                if not may_pass(error):
                    raise
                self._warnings.warn("messages wait for the filter %r: %s", self._seen.name, error)
                await asyncio.sleep(PAUSE)
                continue
            if claim.state != "busy":
                return claim
            await asyncio.sleep(claim.remaining)


class _Once(BaseMiddleware):
    """The middleware of one message."""

    def __init__(self, msg: Any, /, *, context: Any, claim: Callable[[Any], Awaitable[Any]]) -> None:
        super().__init__(msg, context=context)
        self._claim = claim
        self._held: Any = None
        self._error: BaseException | None = None

    async def consume_scope(self, call_next: Callable[[Any], Awaitable[Any]], msg: Any) -> Any:
        """Call the handler if the item is new."""
        if msg.source_type is not SourceType.CONSUME:
            return await call_next(msg)
        if self._held is None:  # else another middleware calls the handler again
            claim = await self._claim(msg)
            if not claim:
                raise AckMessage
            self._held = await claim.__aenter__()
        self._error = None
        try:
            return await call_next(msg)
        except BaseException as error:
            self._error = error  # another middleware may handle it
            raise

    async def after_processed(
        self,
        exc_type: type[BaseException] | None = None,  # noqa: ARG002 - as FastStream calls it
        exc_val: BaseException | None = None,
        exc_tb: Any = None,
    ) -> bool | None:
        """End the claim, after the result of the handler is published."""
        if self._held is not None:
            error = exc_val or self._error
            is_done = error is None or isinstance(error, AckMessage)  # the handler says so
            await self._held.__aexit__(None if is_done else type(error), error, exc_tb)
        return False
