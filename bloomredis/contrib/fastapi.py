"""A dependency for receivers of webhooks: a repeated event is answered without work."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, suppress
from typing import Any
from urllib.parse import quote

from bloomredis.contrib import needs
from bloomredis.contrib._bodies import MOST_DROPPED
from bloomredis.contrib._flavours import awaited, require_async
from bloomredis.contrib._items import item_of
from bloomredis.contrib.idempotency import Answer, claim_or_answer, guarding, is_missing

with needs("fastapi", "fastapi"):
    from fastapi import Depends, HTTPException, Request


__all__ = ["once"]


def once(
    seen: Any,
    *,
    header: str | None = None,
    key: Callable[[Request], Any] | None = None,
    lease: float = 30.0,
    renew: bool = True,
    bare: bool = False,
) -> Any:
    """Return a dependency that answers repeats of a done event without a call of the endpoint.

    ::

        @app.post("/hook", dependencies=[once(seen, header="X-GitHub-Delivery")])
        async def hook(event: dict): ...

    The event is claimed before the endpoint runs, and committed after it, before the response is sent.  If
    the endpoint raises, the event is given back.  If it returns a response with an error status, the event
    counts as done.  Dependencies that `yield` with `scope="function"`, as a session that commits at its end,
    end before the commit of the event; those with the default scope end after the response.

    * The event is done: 200, and the endpoint is not called.
    * Another worker holds the event: 409 with Retry-After, so that the sender delivers it again.
    * The filter's server is away: 503, so that the sender delivers it again.
    * The event has no id, or its header stands there twice: 400.

    Verify signatures in a dependency before this one, or anybody can mark events.  A filter mistakes a new
    event for an old one at its error rate.

    :param seen: a filter of `bloomredis.asyncio`.
    :param header: the header with the id of an event.
    :param key: a function or coroutine function that takes a request and returns the id of its event; None or
        "" means that it has none, and the endpoint runs as usual.  The item also has the method and the path.
    :param lease: if this worker dies, another delivery may be worked on after so many seconds.
    :param renew: renew the lease while the endpoint runs: see `BloomFilter.claim`.
    :param bare: leave the method and the path out of the item: an event is done for all endpoints together.
    :raises TypeError: neither or both of `header` and `key` are given, or `seen` is no such filter.
    """
    if (header is None) == (key is None):
        raise TypeError("give header= or key= for the id of an event, one of the two")
    require_async(seen, "once() of FastAPI")

    async def claimed(request: Request) -> AsyncIterator[None]:
        item = await awaited(key(request)) if key is not None else _id(str(header), request)
        if isinstance(item, Answer):
            raise await _refusal(item, request)
        endpoint = f"{request.method} {quote(request.scope['path'])}"
        item = None if is_missing(item) else item_of(endpoint, item, bare=bare)
        with guarding(request.scope, seen, item) as is_checked:
            if not is_checked:
                yield
                return
            claim = await claim_or_answer(seen, item, "event", lease=lease, renew=renew)
            if isinstance(claim, Answer):
                raise await _refusal(claim, request)
            is_done = False
            async with claim:
                async with _begun_before(request):
                    yield
                    is_done = True
                if not is_done:  # one of them has suppressed an error
                    await claim.release()

    return Depends(claimed, scope="function")


def _id(header: str, request: Request) -> str | Answer:
    """Return the id in the header; an `Answer` unless there is one."""
    found = [value for value in request.headers.getlist(header) if value]
    return found[0] if len(found) == 1 else Answer(400, f"{len(found)} ids of an event in {header}, not one")


def _begun_before(request: Request) -> AsyncExitStack:
    """Return the ends of dependencies that began before this one: they come before the commit."""
    ends: AsyncExitStack = request.scope.get("fastapi_function_astack") or AsyncExitStack()
    return ends.pop_all()


async def _refusal(answer: Answer, request: Request) -> HTTPException:
    """Return the exception with that answer, after the body was read: see `_bodies.MOST_DROPPED`."""
    left = MOST_DROPPED
    with suppress(Exception):  # the sender has hung up, or the body was read before
        async for piece in request.stream():
            left -= len(piece)
            if left <= 0:
                break
    return HTTPException(answer.status, answer.detail, answer.headers)
