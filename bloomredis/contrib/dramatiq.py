"""A middleware for Dramatiq: no actor runs again for an item that is done."""

from __future__ import annotations

import functools
import math
import threading
from collections.abc import Callable
from typing import Any, Final, NoReturn

from bloomredis import Claim
from bloomredis.contrib import needs
from bloomredis.contrib._flavours import require_sync
from bloomredis.contrib._items import call_item, item_of, require_result

with needs("dramatiq", "dramatiq"):
    from dramatiq import Middleware
    from dramatiq.middleware import SkipMessage
    from dramatiq.results import ResultFailure, ResultMissing, Results

__all__ = ["Once"]

ADVICE: Final = "Give the actor once=, a function of its arguments that returns a key"


class Once(Middleware):
    """A middleware that claims the item of a message before its actor runs, and commits it afterwards.

    ::

        broker.add_middleware(Once(seen))


        @dramatiq.actor(once=lambda order, carrier: order)
        def ship(order, carrier): ...

    It applies to actors with the option `once`: a function that takes the arguments of a message and returns
    a key, or True, with which all arguments make up the item, also those left out.  If the function returns
    None, the actor runs unchecked.  Two actors share no item.

    * Done: the message succeeds without the actor, so pipelines and groups continue.  Its result is None or
      that of the option `on_done`, a function that takes the arguments of the message.
    * Busy: the worker that holds the item may be dead, so the message comes again when that claim's lease
      ends.  This does not count as a retry.

    If the actor raises, the item is given back before the retry.  While the filter's server is away, no such
    actor runs, and messages are retried.

    The commit comes after all other middleware: a message of a pipeline and a result are stored before it.

    :param seen: a filter of `bloomredis`.
    :param lease: a dead worker's item is free after so many seconds.
    :param renew: renew the lease while the actor runs: see `BloomFilter.claim`.
    :param bare: leave the actor's name out of the items: an item is done for all actors together.
    """

    def __init__(self, seen: Any, *, lease: float = 30.0, renew: bool = True, bare: bool = False) -> None:
        require_sync(seen, "Once of Dramatiq")
        self._seen = seen
        self._lease = lease
        self._renew = renew
        self._bare = bare
        self._thread = _Thread()

    @property
    def actor_options(self) -> set[str]:
        """The options of an actor."""
        return {"once", "on_done"}

    def before_worker_boot(self, broker: Any, worker: Any) -> None:
        """Put the commits first into the list of middleware, whose first is called last after a message."""
        if not any(isinstance(each, _Commits) and each.once is self for each in broker.middleware):
            broker.middleware = [_Commits(self), *broker.middleware]

    def after_declare_actor(self, broker: Any, actor: Any) -> None:
        """Wrap the function of an actor with the option: it does not run again for an item that is done."""
        if actor.options.get("once"):
            actor.fn = self._once(actor, actor.fn)

    def _once(self, actor: Any, body: Callable[..., Any]) -> Callable[..., Any]:
        """Return an actor's function, which skips the body for a done item; a direct call runs the body."""

        @functools.wraps(body)
        def run(*args: Any, **kwargs: Any) -> Any:
            message, self._thread.message = self._thread.message, None
            if message is None or message.actor_name != actor.actor_name:
                return body(*args, **kwargs)
            item = self._item(actor, body, args, kwargs)
            if item is None:
                return body(*args, **kwargs)
            claim = self._seen.claim(item, lease=self._lease, renew=self._renew)
            if not claim:
                self._check_copy(actor.broker, message, claim)
                on_done = actor.options.get("on_done")
                return None if on_done is None else on_done(*args, **kwargs)
            self._thread.claim = claim
            return require_result(actor.actor_name, body(*args, **kwargs))

        return run

    def _item(
        self, actor: Any, body: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        """Return the item of a message; None if its actor runs unchecked."""
        name, once = actor.actor_name, actor.options["once"]
        if once is True:
            return call_item(name, body, args, kwargs, bare=self._bare, advice=ADVICE)
        key = once(*args, **kwargs)
        return None if key is None else item_of(name, key, bare=self._bare)

    def _check_copy(self, broker: Any, message: Any, claim: Any) -> None:
        """Return if the item is done and the message has no result: it succeeds without the actor.

        :raises SkipMessage: the item is busy, and the message will come again.  Or a copy of this message has
            done the work; its result, group and pipeline must not change.
        """
        if claim.state == "busy":
            broker.enqueue(message, delay=max(1, math.ceil(claim.remaining * 1000)))
            _skip(message, "is busy and comes again")
        if _has_result(broker, message):
            _skip(message, "has succeeded before")

    def before_process_message(self, broker: Any, message: Any) -> None:
        """Remember the message that this thread processes."""
        self._thread.message = message

    def after_process_message(self, broker: Any, message: Any, *, exception: Any = None, **_: Any) -> None:
        """Give the item back if the actor raised."""
        if exception is not None:
            self.after_skip_message(broker, message)

    def after_skip_message(self, broker: Any, message: Any) -> None:
        """Give the item back if the message was skipped."""
        if claim := self._thread.end():
            claim.release()

    def commit(self) -> None:
        """Commit the item of the message that this thread processes."""
        if claim := self._thread.end():
            claim.commit()


class _Thread(threading.local):
    """The message that a thread of a worker processes, and the claim on its item."""

    message: Any = None
    claim: Claim | None = None

    def end(self) -> Claim | None:
        """Return the claim, and forget it and the message."""
        claim, self.claim, self.message = self.claim, None, None
        return claim


class _Commits(Middleware):
    """The commits of a middleware `Once`."""

    def __init__(self, once: Once) -> None:
        self.once = once

    def after_process_message(self, *_: Any, **__: Any) -> None:
        """Commit the item of a message whose actor has not raised."""
        self.once.commit()


def _has_result(broker: Any, message: Any) -> bool:
    """Return whether the result of a message is stored."""
    for each in broker.middleware:
        if isinstance(each, Results):
            try:
                each.backend.get_result(message)
            except (ResultMissing, ResultFailure):
                return False
            return True
    return False


def _skip(message: Any, reason: str) -> NoReturn:
    """Skip a message; the middleware `Results` would store None for it."""
    message.options["store_results"] = False
    raise SkipMessage(f"{message} {reason}")
