"""A middleware for Dramatiq that runs an actor once for each item."""

from __future__ import annotations

import math
from typing import Any

from bloomredis import Claim
from bloomredis.contrib import missing

try:
    from dramatiq import Middleware
    from dramatiq.middleware import MiddlewareError, SkipMessage
except ImportError as error:
    raise missing("dramatiq", "dramatiq") from error


class NotClaimedError(MiddlewareError):
    """The item could not be claimed, or its message could not be delayed; the broker retries it later."""


class Once(Middleware):
    """A middleware that claims the item of a message before its actor runs, and commits it afterwards.

    ::

        broker.add_middleware(Once(seen))


        @dramatiq.actor(once=lambda order, carrier: order)
        def ship(order, carrier): ...

    It applies to actors with the option `once`: a function that takes the arguments of a message and returns
    the item, or True, with which all arguments make up the item.

    If the item is done, the message is skipped.  If the item is busy, the worker that holds it may be dead,
    so the message comes again when that claim's lease ends; this does not count as a retry.  If the actor
    raises, the item is given back before the retry.  While the filter's server is away, no such actor runs,
    and messages are retried.

    The commit comes after all other middleware: a message of a pipeline and a result are stored before it.

    :param seen: a filter of `bloomredis`.
    :param lease: a dead worker's item is free after so many seconds.
    :param renew: extend the lease while the actor runs.
    """

    def __init__(self, seen: Any, *, lease: float = 30.0, renew: bool = True) -> None:
        self._seen = seen
        self._lease = lease
        self._renew = renew
        self._claims: dict[int, Claim] = {}  # by the identity of messages that are being processed

    @property
    def actor_options(self) -> set[str]:
        """The option of an actor."""
        return {"once"}

    def before_worker_boot(self, broker: Any, worker: Any) -> None:
        """Put the commits first into the list of middleware, whose first is called last after a message."""
        del worker
        if not any(isinstance(each, _Commits) and each.once is self for each in broker.middleware):
            broker.middleware = [_Commits(self), *broker.middleware]

    def before_process_message(self, broker: Any, message: Any) -> None:
        """Claim the item; skip the message if the item is done, and delay it if the item is busy."""
        once = broker.get_actor(message.actor_name).options.get("once")
        if not once:
            return
        # The broker would log any error but a MiddlewareError, and run the actor all the same.
        try:
            claim = self._seen.claim(_item(once, message), self._lease, renew=self._renew)
        except Exception as error:
            raise NotClaimedError(f"the item of {message} could not be claimed: {error}") from error
        if claim:
            self._claims[id(message)] = claim
            return
        if claim.state == "busy":
            _put_off(broker, message, claim.remaining)
        raise SkipMessage(f"{message} is {claim.state}")

    def after_process_message(
        self, broker: Any, message: Any, *, result: Any = None, exception: BaseException | None = None
    ) -> None:
        """Give the item back if the actor raised."""
        del result
        if exception is not None:
            self.after_skip_message(broker, message)

    def after_skip_message(self, broker: Any, message: Any) -> None:
        """Give the item back if another middleware skips the message."""
        del broker
        if claim := self._claims.pop(id(message), None):
            claim.release()

    def commit(self, message: Any) -> None:
        """Commit the item of a message."""
        if claim := self._claims.pop(id(message), None):
            claim.commit()


class _Commits(Middleware):
    """The commits of a middleware `Once`."""

    def __init__(self, once: Once) -> None:
        self.once = once

    def after_process_message(
        self, broker: Any, message: Any, *, result: Any = None, exception: BaseException | None = None
    ) -> None:
        """Commit the item of a message whose actor has not raised."""
        del broker, result, exception
        self.once.commit(message)


def _item(once: Any, message: Any) -> Any:
    """Return the item of a message."""
    if once is True:
        named = sorted(message.kwargs.items())
        return repr((message.actor_name, tuple(message.args), named))
    return once(*message.args, **message.kwargs)


def _put_off(broker: Any, message: Any, seconds: float) -> None:
    """Enqueue the message again, with a delay in seconds."""
    try:
        broker.enqueue(message, delay=max(1, math.ceil(seconds * 1000)))
    except Exception as error:
        raise NotClaimedError(f"{message} could not be delayed: {error}") from error
