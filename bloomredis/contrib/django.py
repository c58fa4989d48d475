"""A decorator for views of Django that runs once for an `Idempotency-Key`, or for an event of a webhook."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Collection
from typing import Any

from bloomredis import BloomError
from bloomredis.contrib import missing
from bloomredis.contrib._flavours import require_async, require_sync
from bloomredis.contrib.idempotency import (
    HEADER,
    METHODS,
    Answer,
    Ending,
    Rules,
    away,
    skipped,
)

try:
    from asgiref.sync import iscoroutinefunction
    from django.db import connections
    from django.http import HttpResponse
except ImportError as error:
    raise missing("django", "Django") from error


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
) -> Callable[[Any], Any]:
    """Return a decorator of views: a request with the same key runs once.

    ::

        @once(seen)
        def pay(request): ...

    If a request is done, it is answered 200 without the view.  It is answered 409 with Retry-After while
    another worker runs it, 503 while the filter does not answer, and 400 if it has no key.

    The key is committed after the view has returned a response with status 2xx or 303, or with
    ATOMIC_REQUESTS after the transaction, and before the response is sent.  The key is given back after any
    other status, and after an exception.

    :param seen: a filter of `bloomredis`; for asynchronous views, a filter of `bloomredis.asyncio`.
    :param header: the header of the key; the item is the method, the path with its query, and the key.
    :param key: takes the request and returns its item; None or "" means that the request has no key.
    :param methods: the methods whose requests are checked.
    :param required: refuse a request without a key, which else runs as usual; by default True without `key`.
    :param lease: if this worker dies, a retry may run after so many seconds; extended while the view runs.
    :param on_done: a view that answers requests that are done, for example with the stored result.
    :param done: takes the status of a response, and returns True if the request is done.
    """
    required = key is None if required is None else required
    rules = Rules(header=header, key=key, methods=methods, required=required, done=done)
    gate = _Gate(seen, rules, lease, on_done)

    def decorate(view: Any) -> Any:
        if iscoroutinefunction(view):
            require_async(seen, "once() of asynchronous views")

            @functools.wraps(view)
            async def waiting(request: Any, *args: Any, **kwargs: Any) -> Any:
                return await gate.wait(
                    functools.partial(view, request, *args, **kwargs), request, args, kwargs
                )

            return waiting

        require_sync(seen, "once() of views")

        @functools.wraps(view)
        def wrapper(request: Any, *args: Any, **kwargs: Any) -> Any:
            return gate.call(functools.partial(view, request, *args, **kwargs), request, args, kwargs)

        return wrapper

    return decorate


class _Gate:
    """The check of requests before a view."""

    def __init__(self, seen: Any, rules: Rules, lease: float, on_done: Any) -> None:
        self._seen = seen
        self._rules = rules
        self._lease = lease
        self._on_done = on_done

    def _item(self, request: Any) -> Any:
        value = request.headers.get(self._rules.header)
        query = request.META.get("QUERY_STRING", "")
        return self._rules.item(request, request.method, request.path, query, value)

    def _skipped(self, claim: Any, request: Any, args: Any, kwargs: Any) -> Any:
        """Return the answer to a repeat."""
        if claim.state == "done" and self._on_done is not None:
            return self._on_done(request, *args, **kwargs)
        return _response(skipped(claim))

    def call(self, view: Callable[[], Any], request: Any, args: Any, kwargs: Any) -> Any:
        """Return the response to a request."""
        item = self._item(request)
        if item is None or isinstance(item, Answer):
            return view() if item is None else _response(item)
        try:
            claim = self._seen.claim(item, self._lease, renew=True)
        except BloomError:
            return _response(away())
        if not claim:
            return self._skipped(claim, request, args, kwargs)
        settle = _Settling(claim)
        try:
            response = view()
            settle.after(is_done=self._rules.is_done(response.status_code))
        except BaseException as error:
            claim.__exit__(type(error), error, None)
            raise
        return response

    async def wait(self, view: Callable[[], Any], request: Any, args: Any, kwargs: Any) -> Any:
        """Return the response to a request, by an asynchronous view."""
        item = self._item(request)
        if item is None or isinstance(item, Answer):
            return await view() if item is None else _response(item)
        try:
            claim = await self._seen.claim(item, self._lease, renew=True)
        except BloomError:
            return _response(away())
        if not claim:
            found = self._skipped(claim, request, args, kwargs)
            return await found if inspect.isawaitable(found) else found
        ending = Ending(claim)
        try:
            response = await view()
            await ending.settle(done=self._rules.is_done(response.status_code))
        except BaseException:
            await ending.give_back()
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

    def after(self, *, is_done: bool) -> None:
        """Commit the claim, now or after the transaction, or release it."""
        self._is_done = is_done
        if not is_done:
            self._claim.release()
        elif self._transaction is None:
            self._claim.commit()
        else:
            self._transaction.on_commit(self._raise)

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


def _response(answer: Answer) -> HttpResponse:
    body, headers = answer.content()
    return HttpResponse(body, status=answer.status, headers=headers)
