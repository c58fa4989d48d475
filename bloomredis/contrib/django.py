"""A decorator for views of Django: a request or an event of a webhook that is done does not run again."""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

from bloomredis import BloomError
from bloomredis.contrib import needs
from bloomredis.contrib._bodies import MOST_DROPPED, drop, length_of
from bloomredis.contrib._flavours import at_once, awaited, require_async, require_sync
from bloomredis.contrib.idempotency import HEADER, METHODS, Answer, Ending, Rules, claim_or_answer, guarding

with needs("django", "Django"):
    from asgiref.sync import iscoroutinefunction
    from django.db import connections
    from django.http import HttpResponse
    from django.utils.decorators import method_decorator


__all__ = ["once"]


def once(
    seen: Any,
    *,
    header: str = HEADER,
    key: Callable[[Any], Any] | None = None,
    methods: Collection[str] = METHODS,
    required: bool | None = None,
    lease: float = 30.0,
    on_done: Callable[..., Any] | None = None,
    done: Callable[[int], object] | None = None,
    bare: bool = False,
) -> Callable[[Any], Any]:
    """Return a decorator of views: a request whose key is done does not run again.

    ::

        @once(seen)
        def pay(request): ...

    If a request is done, it is answered 200 without the view.  It is answered 409 with Retry-After while
    another worker runs it, 503 while the filter does not answer, and 400 if it has no key.

    The key is committed after the view has returned a response with status 2xx or 303, or with
    ATOMIC_REQUESTS after the transaction, and before the response is sent.  The key is given back after any
    other status, after an exception, and if the body was cut off while it was read.

    The options that are not listed here are those of `ASGIMiddleware`.

    :param seen: a filter of `bloomredis`; for asynchronous views, a filter of `bloomredis.asyncio`.
    :param key: as of `ASGIMiddleware`, but it takes the request.
    :param required: refuse a request without a key, which else runs as usual; by default True without `key`.
    :param on_done: a view that answers requests that are done, for example with the stored result.
    """
    required = key is None if required is None else required
    rules = Rules(header=header, key=key, methods=methods, required=required, done=done, bare=bare)
    gate = _Gate(seen, rules, lease, on_done)

    def decorate(view: Any) -> Any:
        if _is_async(view):
            require_async(seen, "once() of asynchronous views")

            @functools.wraps(view)
            async def waiting(request: Any, *args: Any, **kwargs: Any) -> Any:
                return await gate.respond(view, Ending, request, *args, **kwargs)

            return waiting

        if view.__module__ != method_decorator.__module__:  # which first decorates a function of its own
            require_sync(seen, "once() of views")

        @functools.wraps(view)
        def wrapper(request: Any, *args: Any, **kwargs: Any) -> Any:
            return at_once(gate.respond(view, _Settling, request, *args, **kwargs))

        return wrapper

    return decorate


def _is_async(view: Any) -> bool:
    """Return True for an asynchronous view, and for a method of an asynchronous class, such as `dispatch`."""
    owner = getattr(getattr(view, "func", None), "__self__", None)  # as `method_decorator` passes a method
    return iscoroutinefunction(view) or getattr(owner, "view_is_async", False)


@dataclass(frozen=True, slots=True)
class _Gate:
    """The check of requests before a view."""

    seen: Any
    rules: Rules
    lease: float
    on_done: Any

    def _instead(self, answer: Answer, request: Any, /, *args: Any, **kwargs: Any) -> Any:
        """Return the response in place of the view's."""
        if answer.status == HTTPStatus.OK and self.on_done is not None:
            return self.on_done(request, *args, **kwargs)
        body, headers = answer.content()
        return HttpResponse(body, status=answer.status, headers=headers)

    async def respond(self, view: Any, end: Any, request: Any, /, *args: Any, **kwargs: Any) -> Any:
        """Return the response to a request, by a view of either kind.

        :param end: makes the end of a claim: `Ending` or `_Settling`.
        """
        item = self.rules.item_of_environ(request, request.META, request.method, request.path)
        with guarding(getattr(_of_django(request), "scope", request.META), self.seen, item) as is_checked:
            if not is_checked:
                return await awaited(view(request, *args, **kwargs))
            claim = await claim_or_answer(self.seen, item, lease=self.lease)
            if isinstance(claim, Answer):
                response = await awaited(self._instead(claim, request, *args, **kwargs))
                _drop_body(request)
                return response
            ending = end(claim)
            try:
                response = await awaited(view(request, *args, **kwargs))
                is_done = self.rules.is_done(response.status_code) and not _is_cut(request)
                await awaited(ending.settle(done=is_done))
            except BaseException:
                await awaited(ending.give_back())
                raise
            return response


class _Settling:
    """The end of a claim: after the view, or in a transaction (ATOMIC_REQUESTS) after the transaction.

    It is made before the view, so that it is the first hook of the transaction, and none that raises comes
    before it.  Its own error is raised after the hooks of the view.
    """

    def __init__(self, claim: Any) -> None:
        self._claim = claim
        self._is_done = False
        self._error: Exception | None = None
        inside = [each for each in connections.all(initialized_only=True) if _is_in_transaction(each)]
        self._transaction = inside[-1] if inside else None
        if self._transaction is not None:
            self._transaction.on_commit(self._commit)

    def settle(self, *, done: bool) -> None:
        """Commit the claim, now or after the transaction, or release it."""
        self._is_done = done
        if not done:
            self._claim.release()
        elif self._transaction is None:
            self._claim.commit()
        else:
            self._transaction.on_commit(self._raise)

    def give_back(self) -> None:
        """Give the item back after an error; raise no other error."""
        self._claim.__exit__(BloomError, None, None)

    def _commit(self) -> None:
        if self._is_done:
            try:
                self._claim.commit()
            except Exception as error:
                self._error = error

    def _raise(self) -> None:
        if self._error is not None:
            raise self._error


def _is_in_transaction(connection: Any) -> bool:
    """Return True inside a transaction; those around each test of a `TestCase` never end in a commit."""
    return not all(block._from_testcase for block in connection.atomic_blocks)


def _is_cut(request: Any) -> bool:
    """Return True if the view, or a middleware before it, has read a body to its end, and it was cut off.

    With ASGI a view gets no such request.
    """
    request = _of_django(request)
    if "wsgi.input" not in request.META or not request._read_started:
        return False
    if hasattr(request, "_body"):
        return len(request.body) < length_of(request.META)
    stream = request._stream
    try:
        return bool(stream._pos < stream.limit and not stream.read(1))
    except OSError:
        return True


def _drop_body(request: Any) -> None:
    """Read the rest of the body; with ASGI Django has read it."""
    if "wsgi.input" in request.META:
        # Not by `read`, after which a middleware could not ask for `body`.
        drop(_of_django(request)._stream.read, MOST_DROPPED)


def _of_django(request: Any) -> Any:
    """Return the request itself, or the one inside a request of Django REST framework."""
    return getattr(request, "_request", request)
