"""Claims as workers see them: one class over synchronous clients, one over asyncio clients."""

from __future__ import annotations

import logging
from collections.abc import Coroutine, Generator
from datetime import timedelta
from typing import Any, NoReturn, Self

from bloomredis.arguments import shown
from bloomredis.drivers import aio, sync
from bloomredis.drivers.binding import documented_as
from bloomredis.operations.claims import Held, State

_log = logging.getLogger("bloomredis")


class _Claim:
    """An item that this worker may hold: true if it does.

    `state` is `"claimed"` (this worker holds the item until the lease runs out), `"done"` (it is in the
    filter) or `"busy"` (another worker holds it); after a call `"released"` or `"lost"`.  As a context
    manager it commits on a clean exit and releases the item on an exception; where the item is not
    held it does nothing, so test it first: ``with f.claim(x) as claim: if claim: ...``.
    """

    def __init__(self, client: Any, operations: Any, held: Held) -> None:
        self._client = client
        self._operations = operations
        self._held = held

    @property
    def item(self) -> Any:
        """The item as it was given."""
        return self._held.item

    @property
    def state(self) -> State:
        """`"claimed"` if this worker holds the item, else the reason why not."""
        return self._held.state

    def __bool__(self) -> bool:
        return self._held.state == "claimed"

    def __repr__(self) -> str:
        return f"<Claim on {shown(self.item)}: {self.state}>"

    def _not_released(self, error: Exception) -> None:
        """Log that a release failed, since the caller's own exception is the one to raise."""
        _log.warning("%s was not released (%s); it is free when its lease runs out", shown(self.item), error)


class Claim(_Claim):
    __doc__ = _Claim.__doc__

    def commit(self) -> None:
        """Put the item into the filter and drop the claim, in one step.  Nothing to do if it is done.

        :raises ClaimLostError: the claim is not held any more; nothing was changed.
        :raises OutcomeUnknownError: no answer came; a second call answers as this one would have.
        """
        sync.drive(self._client, self._operations.commit(self._held))

    def release(self) -> None:
        """Give the item back at once.  Nothing happens if it is not held any more."""
        sync.drive(self._client, self._operations.release(self._held))

    def extend(self, lease: float | timedelta) -> None:
        """Hold the item for `lease` seconds (or a timedelta) from now.

        :raises ClaimLostError: the claim is not held any more.
        """
        sync.drive(self._client, self._operations.extend(self._held, lease))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: object, traceback: object) -> None:
        if kind is None and self:
            self.commit()
        elif self:
            try:
                self.release()
            except Exception as failure:
                self._not_released(failure)


@documented_as(Claim)
class AsyncClaim(_Claim):
    """An item that this worker may hold: true if it does."""

    __qualname__ = "Claim"

    async def commit(self) -> None:
        """Put the item into the filter and drop the claim, in one step."""
        await aio.drive(self._client, self._operations.commit(self._held))

    async def release(self) -> None:
        """Give the item back at once."""
        await aio.drive(self._client, self._operations.release(self._held))

    async def extend(self, lease: float | timedelta) -> None:
        """Hold the item for `lease` seconds (or a timedelta) from now."""
        await aio.drive(self._client, self._operations.extend(self._held, lease))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: object, traceback: object) -> None:
        if kind is None and self:
            await self.commit()
        elif self:
            try:
                await self.release()
            except Exception as failure:
                self._not_released(failure)


class Claiming:
    """A claim in progress: await it, or enter it with `async with`."""

    def __init__(self, claiming: Coroutine[Any, Any, AsyncClaim]) -> None:
        self._claiming = claiming

    def __bool__(self) -> NoReturn:
        self._claiming.close()  # or it would be reported a second time, as never awaited
        raise TypeError(
            "a claim in progress is neither true nor false: await it, or enter it with async with"
        )

    def __repr__(self) -> str:
        return "<claim in progress: await it, or enter it with async with>"

    def __await__(self) -> Generator[Any, Any, AsyncClaim]:
        return self._claiming.__await__()

    async def __aenter__(self) -> AsyncClaim:
        self._claim = await self._claiming
        return self._claim

    async def __aexit__(self, kind: type[BaseException] | None, error: object, traceback: object) -> None:
        await self._claim.__aexit__(kind, error, traceback)
