"""Celery: tasks whose body completes once for an item, also where messages are delivered again.

A message comes again when it was sent twice, when a worker dies (`acks_late`), and when the visibility
timeout of the broker is over while the task still runs.
"""

from __future__ import annotations

import inspect
import json
import logging
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, NoReturn

from bloomredis import BloomError, ClaimLostError
from bloomredis.contrib import missing

try:
    from celery import Task
    from celery.exceptions import Ignore, ImproperlyConfigured
except ImportError as error:
    raise missing("celery", "Celery") from error

__all__ = ["Once"]

_log = logging.getLogger("bloomredis")


class Once(Task):
    """Base class of tasks: the body runs for an item that is neither done nor being worked on.

    ::

        @app.task(base=Once, seen=seen, unique_on=["order"], acks_late=True)
        def ship(order, carrier): ...

    The item is claimed before the body, held while it runs, and given back if it raises or asks for a retry.
    It is in the filter when the result is stored and the callbacks are sent.  A message whose item is done
    is acknowledged, and nothing is run.  One whose item another worker holds, or whose filter does not
    answer, is sent again, to come when that claim may have ended; its own retries are not counted up.

    `seen` is a filter of `bloomredis`, `unique_on` the names of the arguments that make the item, None for
    all of them.  `lease` are the seconds until the item of a worker that died is free; keep it shorter than
    the visibility timeout of the broker.
    """

    abstract = True
    seen: ClassVar[Any] = None
    unique_on: ClassVar[Sequence[str] | None] = None
    lease: ClassVar[float] = 30.0

    def item(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> str:
        """Return the item of a call: the name of the task and its arguments, as JSON."""
        bound = inspect.signature(self.run).bind(*args, **kwargs)
        bound.apply_defaults()
        names = bound.arguments if self.unique_on is None else self.unique_on
        return json.dumps([self.name, {name: bound.arguments[name] for name in names}], sort_keys=True)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run the body if the item is new.

        :raises Ignore: it is not.
        """
        if self.seen is None:
            raise ImproperlyConfigured(f"task {self.name} has no filter: give seen= to the decorator")
        request = self.request
        is_sent = not (request.called_directly or request.is_eager)
        try:
            claim = self.seen.claim(self.item(args, kwargs), self.lease, renew=True)
        except BloomError as error:
            if not is_sent:
                raise
            _log.warning("%s[%s] waits for its filter: %s", self.name, request.id, error)
            self._come_again(self.lease)
        if claim.state == "busy" and is_sent:
            self._come_again(claim.remaining)
        if not claim:
            raise Ignore(f"the item is {claim.state}")
        if request.called_directly:
            with claim:
                return super().__call__(*args, **kwargs)
        try:
            result = self.run(*args, **kwargs)
        except BaseException:
            claim.__exit__(BaseException, None, None)
            raise
        request.bloomredis_claim = claim
        return result

    def on_success(self, retval: Any, task_id: str, args: Any, kwargs: Any) -> None:
        """Commit: the result is stored by now.  Call it if you override it."""
        claim = self.request.get("bloomredis_claim")
        try:
            if claim is not None:
                claim.commit()
        except ClaimLostError:
            _log.warning("%s[%s] has lost its claim: the body may run again", self.name, task_id)
        except BloomError as error:
            _log.warning("%s[%s] is done, but not marked: %s", self.name, task_id, error)
        super().on_success(retval, task_id, args, kwargs)

    def _come_again(self, seconds: float) -> NoReturn:
        """Send the message again, to come after that time.

        Not by `retry`, which writes a state over the result that another worker may store meanwhile.
        """
        request = self.request
        self.signature_from_request(request, countdown=seconds, retries=request.retries).apply_async()
        raise Ignore(f"the item is busy for {seconds:.3g} s")
