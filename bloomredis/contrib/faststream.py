"""FastStream: a middleware for Kafka, RabbitMQ, NATS and Redis streams; done items are not handled again."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from contextlib import nullcontext
from typing import Any

from bloomredis import BloomError
from bloomredis.contrib import needs
from bloomredis.contrib._flavours import awaited, require_async
from bloomredis.contrib._items import Missing, checked, is_kept, item_of
from bloomredis.contrib._outages import PAUSE, Warnings

with needs("faststream", "FastStream"):
    from faststream import BaseMiddleware
    from faststream.exceptions import AckMessage
    from faststream.message import SourceType
    from faststream.response import PublishType

__all__ = ["Once"]

Call = Callable[..., Awaitable[Any]]


class Once:
    """A middleware of a broker: a handler runs if its item is neither done nor held by another consumer.

    ::

        broker = KafkaBroker(middlewares=[Once(seen, key=lambda message: message.headers["event-id"])])

    The item is claimed before the handler, and the claim is extended while the handler runs.  The item is
    committed after the handler's result is published and before the message is acknowledged; if one of them
    fails, the item is given back.

    If the item is done, the message is acknowledged without a call of the handler.  If its sender waits for a
    reply, the reply is sent.  The publishers of the handler send nothing: they have sent its result before.

    A message whose item is busy waits until the claim on it ends, and every message waits while the filter's
    server is away.  A message that waits is not refused, because Kafka's consumer would go back to a refused
    message, but commit its offset along with the next message of another partition.

    :param seen: a filter of `bloomredis.asyncio`.
    :param key: takes a message and returns its key, or an awaitable of it (for a key in the body).  The item
        is made of it and of the name of the subscriber: its `title`, or the name of its function.  The
        key must be part of the message: if a message has no `correlation_id`, FastStream generates a
        different one at each delivery.
    :param missing: treatment of a message whose `key` is None: "keep" hands it on unchecked, "drop" treats it
        like a message that is done, and "raise" raises `TypeError`.
    :param lease: a dead consumer's item is free after so many seconds.
    :param on_done: takes a message whose item is done, and returns the reply to it, or an awaitable of the
        reply; None replies with an empty body.
    :param bare: leave the subscriber's name out of the item: a key is done for all subscribers together.
    """

    def __init__(
        self,
        seen: Any,
        *,
        key: Callable[[Any], Any | Awaitable[Any]],
        missing: Missing = "keep",
        lease: float = 30.0,
        on_done: Callable[[Any], Any | Awaitable[Any]] | None = None,
        bare: bool = False,
    ) -> None:
        require_async(seen, "Once of FastStream")
        self._seen = seen
        self._key = key
        self._missing = checked(missing)
        self._lease = lease
        self._on_done = on_done
        self._bare = bare
        self._names: dict[str, object] = {}
        self._warnings = Warnings()

    def __call__(self, msg: Any, /, *, context: Any) -> BaseMiddleware:
        """Return the middleware of one message."""
        return _Once(msg, context=context, calls=(self._claim, self._reply))

    def _name(self, subscriber: Any) -> str:
        """Return the name of a subscriber; raise `ValueError` if another one has it, and so its items."""
        name = subscriber.specification.config.title_ or ",".join(call.name for call in subscriber.calls)
        functions = [inspect.unwrap(call.handler._original_call) for call in subscriber.calls]
        identity = [(function.__module__, function.__qualname__) for function in functions]
        if self._names.setdefault(name, identity) != identity:
            raise ValueError(f"two subscribers with the name {name!r} share items: give one of them title=")
        return str(name)

    async def _claim(self, message: Any, subscriber: Any) -> Any:
        """Return the claim on the item of a message, once this consumer holds it; None if it is done."""
        key = await awaited(self._key(message))
        if key is None:
            return nullcontext() if is_kept(self._missing, f"message {message.message_id}") else None
        item = key if self._bare else item_of(self._name(subscriber), key, bare=False)
        while True:
            try:
                claim = await self._seen.claim(item, lease=self._lease)
            except BloomError as error:
                if not error.transient:
                    raise
                self._warnings.warn("messages wait for the filter %r: %s", self._seen.name, error)
                await asyncio.sleep(PAUSE)
                continue
            if claim.state != "busy":
                return claim or None
            await asyncio.sleep(claim.remaining)

    async def _reply(self, message: Any) -> Any:
        """Return the reply to a message that is done."""
        return None if self._on_done is None else await awaited(self._on_done(message))


class _Once(BaseMiddleware):
    """The middleware of one message."""

    def __init__(self, msg: Any, /, *, context: Any, calls: tuple[Call, Call]) -> None:
        super().__init__(msg, context=context)
        self._claim, self._reply = calls
        self._held: Any = None
        self._done: Any = None  # the message, if it is done already
        self._error: BaseException | None = None

    async def consume_scope(self, call_next: Callable[[Any], Awaitable[Any]], msg: Any) -> Any:
        """Call the handler if the item is new, and return its result; else return the reply."""
        if msg.source_type is not SourceType.CONSUME:
            return await call_next(msg)
        if self._held is None:  # else another middleware calls the handler again
            claim = await self._claim(msg, self.context.get_local("handler_"))
            if claim is None:
                self._done = msg
                return await self._reply(msg)
            await claim.__aenter__()
            self._held = claim
        self._error = None
        try:
            return await call_next(msg)
        except BaseException as error:
            self._error = error  # another middleware may handle it
            raise

    async def publish_scope(self, call_next: Callable[[Any], Awaitable[Any]], cmd: Any) -> Any:
        """Publish a result; of a message that is done already, only the reply."""
        if self._done is None or cmd.publish_type is PublishType.REPLY:
            return await call_next(cmd)
        return None

    async def after_processed(
        self,
        exc_type: type[BaseException] | None = None,
        exc_val: BaseException | None = None,
        exc_tb: Any = None,
    ) -> bool | None:
        """End the claim, after the result of the handler is published."""
        if self._held is not None:
            error = exc_val or self._error
            is_done = error is None or isinstance(error, AckMessage)  # the handler says so
            await self._held.__aexit__(None if is_done else type(error), error, exc_tb)
        elif self._done is not None and exc_val is None:
            await self._done.ack()  # with AckPolicy.MANUAL nobody else does
        return False
