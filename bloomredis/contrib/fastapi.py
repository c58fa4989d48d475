"""A dependency for receivers of webhooks: an event that is delivered again is answered without work."""

from __future__ import annotations

import inspect
import math
from collections.abc import AsyncIterator, Callable
from typing import Any

from bloomredis import BloomError
from bloomredis.contrib import missing

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
    """Return a dependency with which an endpoint runs once for an event.

    ::

        @app.post("/hook", dependencies=[once(seen, header="X-GitHub-Delivery")])
        async def hook(event: dict): ...

    The event is claimed before the endpoint, committed after it, before the response is sent, and given
    back if the endpoint raises.  Return a response with an error status, and it counts as done.

    * Done already: 200, and the endpoint is not called.
    * Another worker is at it: 409 with Retry-After, since that worker may fail; senders deliver again.
    * The server of the filter is away: 503, likewise.
    * There is no event id: 400.

    Verify signatures in a dependency before this one, or anybody can mark events.  A filter takes a new
    event for an old one at its error rate.

    :param seen: a filter of `bloomredis.asyncio`.
    :param header: the header with the id of an event.
    :param key: or a function that returns the id for a request, or a coroutine function.
    :param lease: seconds until another delivery may be worked on after this worker has died.
    :param renew: extend the lease as long as the endpoint runs.
    :raises TypeError: neither or both of `header` and `key` are given.
    """
    if (header is None) == (key is None):
        raise TypeError("give the header with the id of an event, or key=, one of the two")

    async def claimed(request: Request) -> AsyncIterator[None]:
        item = request.headers.get(header) if header is not None else await _key(key, request)
        if not item:
            raise HTTPException(400, f"no id of an event in {header or 'the request'}")
        try:
            claim = await seen.claim(item, lease, renew=renew)
        except BloomError as error:
            raise HTTPException(503, "the event cannot be checked for a repetition now") from error
        if not claim:
            raise _skipped(claim)
        async with claim:
            yield

    return Depends(claimed, scope="function")


async def _key(key: Any, request: Request) -> Any:
    found = key(request)
    return await found if inspect.isawaitable(found) else found


def _skipped(claim: Any) -> HTTPException:
    """Return the answer for an event that is not this request's to work on."""
    if claim.state == "done":
        return HTTPException(200, "this event was processed already")
    after = str(math.ceil(claim.remaining))
    return HTTPException(409, "this event is being processed", {"Retry-After": after})
