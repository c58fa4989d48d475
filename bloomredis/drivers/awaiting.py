"""The awaitable that `claim` of an asyncio filter returns."""

from __future__ import annotations

from collections.abc import Coroutine, Generator
from typing import TYPE_CHECKING, Any, NoReturn

from bloomredis.drivers.aio_claims import Claim


class Claiming:
    """A claim in progress: await it, or enter it with `async with`."""

    def __init__(self, claiming: Coroutine[Any, Any, Claim]) -> None:
        self._claiming = claiming

    def __bool__(self) -> NoReturn:
        self._claiming.close()  # or Python warns that it was never awaited
        raise TypeError(
            "a claim in progress is neither true nor false: await it, or enter it with async with"
        )

    if not TYPE_CHECKING:  # type checkers find the mistake by themselves

        def __enter__(self) -> NoReturn:
            self._claiming.close()
            raise TypeError("enter a claim of bloomredis.asyncio with async with, not with")

        def __exit__(self, *_: object) -> None:
            """Do nothing; Python looks for this method before it calls `__enter__`."""

    def __repr__(self) -> str:
        return "<claim in progress: await it, or enter it with async with>"

    def __await__(self) -> Generator[Any, Any, Claim]:
        return self._claiming.__await__()

    async def __aenter__(self) -> Claim:
        self._claim = await self._claiming
        return await self._claim.__aenter__()

    async def __aexit__(self, kind: type[BaseException] | None, error: object, traceback: object) -> None:
        await self._claim.__aexit__(kind, error, traceback)
