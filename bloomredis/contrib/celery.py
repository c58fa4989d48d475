"""Celery: tasks whose body completes once for an item, however often a message is delivered.

A message comes again if it was sent twice, if a worker dies, or if the broker's visibility timeout ends while
the task still runs.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, NoReturn

from bloomredis import BloomError, ClaimLostError, Skipped
from bloomredis.contrib import missing
from bloomredis.contrib._flavours import require_sync

try:
    from celery import Task, states
    from celery.exceptions import Ignore, ImproperlyConfigured, Reject
    from kombu.utils.json import dumps, register_type
except ImportError as error:
    raise missing("celery", "Celery") from error

__all__ = ["Once"]

_log = logging.getLogger("bloomredis")

register_type(
    Skipped, "bloomredis.Skipped", lambda made: [made.item, made.state, made.remaining], lambda a: Skipped(*a)
)  # results travel as JSON


class Once(Task):
    """A base class of tasks: the body runs if its item is neither done nor held by another worker.

    ::

        @app.task(base=Once, seen=seen, unique_on=["order"])
        def ship(order, carrier): ...

    The item is claimed before the body, and the claim is extended while the body runs.  If the body raises or
    asks for a retry, the item is given back.  The item is committed after the result is stored and the
    callbacks are sent.

    * Done: the call succeeds without the body.  Its result is `Skipped` or the result of `on_done`, with
      which chains and chords continue.
    * Busy: the message is sent again, to arrive when the other worker's claim may have ended.  This does not
      count as a retry of the task.  A call without a message (direct or eager) returns `Skipped`.
    * The filter does not answer: the message is sent again, to arrive after `lease` seconds.  This does not
      count as a retry either.  A call without a message raises the filter's error.

    A message is acknowledged after the body, and delivered again if the process of a worker is killed
    (`acks_late` and `reject_on_worker_lost`, which a task may set to False).

    `seen` is a filter of `bloomredis`.  `unique_on` names the arguments that make up the item; None means all
    arguments.  They may have any type that Celery's JSON encodes.  `lease` is the number of seconds after
    which a dead worker's item is free; keep it shorter than the broker's visibility timeout.  `on_done` takes
    the arguments of the body, and returns the result of a call whose item is done.
    """

    abstract = True
    acks_late = True
    reject_on_worker_lost = True
    seen: ClassVar[Any] = None
    unique_on: ClassVar[Sequence[str] | None] = None
    lease: ClassVar[float] = 30.0
    on_done: ClassVar[Callable[..., Any] | None] = None

    def __init_subclass__(cls, **options: Any) -> None:
        """Refuse a filter of asyncio, and a `unique_on` that does not name arguments of the body."""
        super().__init_subclass__(**options)
        name = f"task {cls.name or cls.__name__}"
        if cls.seen is not None:
            require_sync(cls.seen, name)
        if cls.unique_on is not None and cls.run is not Task.run and cls.item is Once.item:
            _check_names(name, cls.unique_on, inspect.getattr_static(cls, "run"))

    def item(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> str | None:
        """Return the item of a call: the name of the task and its arguments, as Celery's own JSON.

        If you override it, it may return None: then the body runs unchecked.

        :raises TypeError: JSON cannot encode an argument.
        """
        bound = inspect.signature(self.run).bind(*args, **kwargs)
        bound.apply_defaults()
        names = bound.arguments if self.unique_on is None else self.unique_on
        try:
            text: str = dumps([self.name, {name: bound.arguments[name] for name in names}], sort_keys=True)
        except TypeError as error:
            raise TypeError(
                f"an argument of {self.name} cannot be part of its item: {error}. Name other arguments in "
                "unique_on, register the type with kombu.utils.json.register_type, or override item()"
            ) from error
        return text

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run the body if the item is new; return its result, or the result of a skipped call."""
        if self.seen is None:
            raise ImproperlyConfigured(f"task {self.name} has no filter: give seen= to the decorator")
        request = self.request
        is_sent = not (request.called_directly or request.is_eager)
        body = super().__call__ if request.called_directly else self.run
        item = self.item(args, kwargs)
        if item is None:
            return body(*args, **kwargs)
        try:
            claim = self.seen.claim(item, self.lease, renew=True)
        except BloomError as error:
            if not is_sent:
                raise
            self._come_again(self.lease, f"its filter: {error}")
        if not claim:
            if is_sent:
                self._check_copy(claim)
            return self._skipped(Skipped(item, claim.state, claim.remaining), args, kwargs)
        if request.called_directly:
            with claim:
                return body(*args, **kwargs)
        try:
            result = body(*args, **kwargs)
        except BaseException:
            claim.__exit__(BaseException, None, None)
            raise
        request.bloomredis_claim = claim
        return result

    def on_success(self, retval: Any, task_id: str, args: Any, kwargs: Any) -> None:
        """Commit the item, whose result is stored by now.  If you override it, call `super().on_success`."""
        claim = self.request.get("bloomredis_claim")
        try:
            if claim is not None:
                claim.commit()
        except ClaimLostError:
            _log.warning("%s[%s] lost its claim: the body may run again", self.name, task_id)
        except BloomError as error:
            _log.warning("%s[%s] succeeded, but its item was not committed: %s", self.name, task_id, error)
        super().on_success(retval, task_id, args, kwargs)

    def _check_copy(self, claim: Any) -> None:
        """Return if the item is done and no success of this message is stored: it succeeds without the body.

        :raises Ignore: the item is busy, or the result backend does not answer, and the message was sent
            again.  Or a copy of this message has done the work; its result and callbacks must not change.
        """
        if claim.state == "busy":
            self._come_again(claim.remaining, "another worker")
        try:
            is_copy = self.backend.get_state(self.request.id) == states.SUCCESS
        except NotImplementedError:  # no backend, so there is no result to keep
            is_copy = False
        except Exception as error:
            self._come_again(self.lease, f"the result backend: {error}")
        if is_copy:
            raise Ignore("a copy of this message has succeeded")

    def _skipped(self, skipped: Skipped, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """Return the result of a call without the body."""
        if self.on_done is None or skipped.state == "busy":
            return skipped
        if isinstance(inspect.getattr_static(self, "run"), staticmethod):  # no `bind`: `on_done` gets no task
            found = inspect.getattr_static(self, "on_done")
            return (found.__func__ if isinstance(found, staticmethod) else found)(*args, **kwargs)
        return self.on_done(*args, **kwargs)

    def _come_again(self, seconds: float, reason: str) -> NoReturn:
        """Send the message again, to arrive after so many seconds.

        `retry` would write a state over the result that another worker may store meanwhile.
        """
        request = self.request
        try:
            self.signature_from_request(request, countdown=seconds, retries=request.retries).apply_async()
        except Exception as error:
            raise Reject(error, requeue=True) from error
        _log.info("%s[%s] comes again in %.3g s; it waits for %s", self.name, request.id, seconds, reason)
        raise Ignore(f"it comes again in {seconds:.3g} s")


def _check_names(task: str, names: Sequence[str], run: Any) -> None:
    """Raise `TypeError` or `ValueError` unless all names are those of arguments of a body."""
    if isinstance(names, str):
        raise TypeError(f"unique_on of {task} must be a list of names, not a str: write [{names!r}]")
    is_static = isinstance(run, staticmethod)  # no `bind`: the first argument is not the task
    arguments = [*inspect.signature(run.__func__ if is_static else run).parameters][not is_static :]
    if wrong := [name for name in names if name not in arguments]:
        raise ValueError(
            f"unique_on of {task} names {', '.join(map(repr, wrong))}; the arguments are "
            f"{', '.join(arguments) or 'none'}"
        )
