"""A middleware for Dramatiq: messages of an actor are worked on once for each item."""

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
    """The item could not be claimed, or its message not be put off; the broker tries it again later."""


class Once(Middleware):
    """Claims the item of a message before its actor runs, and commits it afterwards.

    ::

        broker.add_middleware(Once(seen))


        @dramatiq.actor(once=lambda order, carrier: order)
        def ship(order, carrier): ...

    It is for actors with the option `once`: a function that returns the item, given the arguments of a
    message, or True for all of these together.  A message whose item is done is skipped.  One whose item is
    busy comes again when the lease of that claim is over, and that is no retry: the worker that has it may be
    dead.  An actor that raises gives the item back before its retry.  Without the filter's server nothing
    runs, and messages are retried.

    :param seen: a filter of `bloomredis`.
    :param lease: seconds until the item of a worker that died is free.
    :param renew: extend the lease as long as the actor runs.
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

    def before_process_message(self, broker: Any, message: Any) -> None:
        """Claim the item; skip the message if it is done, and put it off while it is busy."""
        once = broker.get_actor(message.actor_name).options.get("once")
        if not once:
            return
        # Any error but these would be logged by the broker, and the actor run all the same.
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
        """Commit the item, or give it back if the actor has raised."""
        del broker, result
        if claim := self._claims.pop(id(message), None):
            claim.commit() if exception is None else claim.release()

    def after_skip_message(self, broker: Any, message: Any) -> None:
        """Give the item back where another middleware skips the message."""
        del broker
        if claim := self._claims.pop(id(message), None):
            claim.release()


def _item(once: Any, message: Any) -> Any:
    """Return the item of a message."""
    if once is True:
        named = sorted(message.kwargs.items())
        return repr((message.actor_name, tuple(message.args), named))
    return once(*message.args, **message.kwargs)


def _put_off(broker: Any, message: Any, seconds: float) -> None:
    """Let the message come again after that time."""
    try:
        broker.enqueue(message, delay=max(1, math.ceil(seconds * 1000)))
    except Exception as error:
        raise NotClaimedError(f"{message} could not be put off: {error}") from error
