"""Tasks whose calls share a script."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import Any

from tests.support.background import PATIENCE
from tests.support.proxy import Fate, Held, Proxy


async def shared(
    proxy: Proxy,
    f: Any,
    calls: Iterable[Awaitable[Any]],
    *fates: Fate,
    meanwhile: Callable[[], object] = lambda: None,
) -> list[Any]:
    """Make calls that wait for one in flight, and share a script afterwards; return the outcome of each.

    :param fates: those of the attempts at the shared script.
    :param meanwhile: called while the calls wait.
    """
    await f.add("warm")
    held = Held()
    proxy.plan("add", held, *fates)
    first = asyncio.ensure_future(f.add("first"))
    await asyncio.to_thread(held.wait)
    waiting = list(map(asyncio.ensure_future, calls))
    await asyncio.sleep(0)
    meanwhile()
    held.go.set()
    assert await first
    return await asyncio.wait_for(asyncio.gather(*waiting, return_exceptions=True), PATIENCE)
