"""A dependency for receivers of webhooks: a repeated event is answered without work."""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator, Callable
from typing import Any

from bloomredis import BloomError
from bloomredis.contrib import missing
from bloomredis.contrib._flavours import require_async
from bloomredis.contrib.idempotency import Answer, away, skipped

try:
    from fastapi import Depends, HTTPException, Request
except ImportError as error:
    raise missing("fastapi", "fastapi") from error


def once(
    seen: Any,
    *,
    header: str | None = None,
    key: Callable[[Request], Any] | None = None,
    lease: float = 30.0,
    renew: bool = True,
) -> Any:
    """Return a dependency that makes an endpoint run once for an event.

    ::

        @app.post("/hook", dependencies=[once(seen, header="X-GitHub-Delivery")])
        async def hook(event: dict): ...

    The event is claimed before the endpoint runs, and committed after it, before the response is sent.  If
    the endpoint raises, the event is given back.  If it returns a response with an error status, the event
    counts as done.

    * The event is done: 200, and the endpoint is not called.
    * Another worker holds the event: 409 with Retry-After, so that the sender delivers it again.
    * The filter's server is away: 503, so that the sender delivers it again.
    * The event has no id: 400.

    Verify signatures in a dependency before this one, or anybody can mark events.  A filter mistakes a new
    event for an old one at its error rate.

    :param seen: a filter of `bloomredis.asyncio`.
    :param header: the header with the id of an event.
    :param key: a function or coroutine function that takes a request and returns the id of its event.
    :param lease: if this worker dies, another delivery may be worked on after so many seconds.
    :param renew: extend the lease while the endpoint runs.
    :raises TypeError: neither or both of `header` and `key` are given, or `seen` is no such filter.
    """
    if (header is None) == (key is None):
        raise TypeError("give header= or key= for the id of an event, one of the two")
    require_async(seen, "once() of FastAPI")

    async def claimed(request: Request) -> AsyncIterator[None]:
        item = request.headers.get(header) if header is not None else await _key(key, request)
        if not item:
            raise HTTPException(400, f"no id of an event in {header or 'the request'}")
        try:
            claim = await seen.claim(item, lease, renew=renew)
        except BloomError as error:
            raise _exception(away("event")) from error
        if not claim:
            raise _exception(skipped(claim, "event"))
        async with claim:
            yield

    return Depends(claimed, scope="function")


async def _key(key: Any, request: Request) -> Any:
    found = key(request)
    return await found if inspect.isawaitable(found) else found


def _exception(answer: Answer) -> HTTPException:
    return HTTPException(answer.status, answer.detail, answer.headers)
