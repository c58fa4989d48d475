"""Celery: tasks whose body does not run again for an item that is done.

A message comes again if it was sent twice, if a worker dies, or if the broker's visibility timeout ends while
the task still runs.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from typing import Any, ClassVar, Final

from bloomredis import BloomError, ClaimLostError, Skipped
from bloomredis.contrib import needs
from bloomredis.contrib._flavours import require_sync
from bloomredis.contrib._items import call_item, item_of, require_result

with needs("celery", "Celery"):
    from celery import Task, states
    from celery._state import _task_stack
    from celery.exceptions import Ignore, ImproperlyConfigured, Reject
    from kombu.utils.json import dumps, register_type

__all__ = ["Once"]

ADVICE: Final = (
    "Name other arguments in unique_on, register the type with kombu.utils.json.register_type, or override "
    "item()"
)

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
    * A call in the body of another task, as by `chunks`, `map` and `starmap`, belongs to the message of that
      task, which is sent again.

    A message is acknowledged after the body, and delivered again if the process of a worker is killed
    (`acks_late` and `reject_on_worker_lost`, which a task may set to False).

    `seen` is a filter of `bloomredis`.  `unique_on` names the arguments that make up the item, together with
    the task's name; None means all arguments.  They may have any type that Celery's JSON encodes.  With
    `bare=True` the item has no name: it is done for all such tasks of the filter together.  `lease` is the
    number of seconds after which a dead worker's item is free; keep it shorter than the broker's visibility
    timeout.  `on_done` takes the arguments of the body, and returns the result of a call whose item is done.
    """

    abstract = True
    acks_late = True
    reject_on_worker_lost = True
    seen: ClassVar[Any] = None
    unique_on: ClassVar[Sequence[str] | None] = None
    bare: ClassVar[bool] = False
    lease: ClassVar[float] = 30.0
    on_done: ClassVar[Callable[..., Any] | None] = None

    def __init_subclass__(cls, **options: Any) -> None:
        """Refuse a filter of asyncio, a coroutine function, and a `unique_on` that names no arguments."""
        super().__init_subclass__(**options)
        name = f"task {cls.name or cls.__name__}"
        if cls.seen is not None:
            require_sync(cls.seen, name)
        if inspect.iscoroutinefunction(inspect.unwrap(cls.run)):
            raise TypeError(f"{name} is a coroutine function, which Celery does not run; use asyncio.run()")
        if cls.unique_on is not None and cls.run is not Task.run and cls.item is Once.item:
            _check_names(name, cls.unique_on, inspect.getattr_static(cls, "run"))

    def item(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> str | None:
        """Return the item of a call: the name of the task and its arguments, as Celery's own JSON.

        If you override it, the name of the task is added to what it returns.  If it returns None, the body
        runs unchecked.

        :raises TypeError: JSON cannot encode an argument.
        """
        return call_item(
            self.name, self.run, args, kwargs, only=self.unique_on, bare=self.bare, advice=ADVICE, dumps=dumps
        )

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run the body if the item is new; return its result, or the result of a skipped call."""
        if self.seen is None:
            raise ImproperlyConfigured(f"task {self.name} has no filter: give seen= to the decorator")
        request = self.request
        body = super().__call__ if request.called_directly else self.run
        item = self.item(args, kwargs)
        if item is None:
            return body(*args, **kwargs)
        is_named = type(self).item is Once.item or self.bare
        try:
            claim = self.seen.claim(item_of(self.name, item, bare=is_named), lease=self.lease)
        except BloomError as error:
            self._come_again(self.lease, f"its filter: {error}")
            raise
        if not claim:
            if claim.state == "busy":
                self._come_again(claim.remaining, "another worker")
            elif not (request.called_directly or request.is_eager):
                self._check_copy()
            return self._skipped(Skipped(item, claim.state, claim.remaining), args, kwargs)
        with ExitStack() as stack:
            stack.push(claim)
            result = require_result(self.name, body(*args, **kwargs))
            if not request.called_directly:
                request.bloomredis_claim = claim
                stack.pop_all()
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

    def _check_copy(self) -> None:
        """Return if no success of this message, whose item is done, is stored: it succeeds without the body.

        :raises Ignore: the result backend does not answer, and the message was sent again.  Or a copy of this
            message has done the work; its result and callbacks must not change.
        """
        try:
            is_copy = self.backend.get_state(self.request.id) == states.SUCCESS
        except NotImplementedError:  # no backend, so there is no result to keep
            is_copy = False
        except Exception as error:
            self._come_again(self.lease, f"the result backend: {error}")
            raise
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

    def _come_again(self, seconds: float, reason: str) -> None:
        """Send the message that carries this call again, to arrive after so many seconds.

        It is the message of another task if that one calls this one in its body, as `chunks` does.  `retry`
        would write a state over the result that another worker may store meanwhile.

        :raises Ignore: the message is sent.  Without a message, as outside a worker, the call returns.
        """
        task, request = _carrier()
        if request is None:
            return
        try:
            task.signature_from_request(request, countdown=seconds, retries=request.retries).apply_async()
        except Exception as error:
            raise Reject(error, requeue=True) from error
        _log.info(
            "%s[%s] comes again in %.3g s; %s waits for %s", task.name, request.id, seconds, self.name, reason
        )
        raise Ignore(f"it comes again in {seconds:.3g} s")


def _carrier() -> tuple[Any, Any]:
    """Return the task whose message is worked on, and its request; None and None if there is none."""
    for task in reversed(_task_stack.stack):
        for request in reversed(task.request_stack.stack):
            if not (request.called_directly or request.is_eager):
                return task, request
    return None, None


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
