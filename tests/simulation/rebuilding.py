"""Rebuilds of a filter, after which none of its items may be missed.

The source has all items from the beginning of the rebuild, except some that were added since: their adds
put them into the successor, even if they got "already there".
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from typing import TYPE_CHECKING, Any, Final

from tests.simulation.kinds import NAMES

if TYPE_CHECKING:
    from tests.simulation.world import World

TIMEOUT: Final = 30.0
_CAPACITIES: Final = (None, 40, 300)


def rebuild(world: World, operations: Any, ref: str) -> Generator[Any, Any, None]:
    """Do the context manager's work for threads."""
    block = operations.rebuild(**_options(ref))
    new = yield from block.begin()
    try:
        for name in Source(world):
            yield from new.add(name)
    except Exception:
        yield from block.abandon()
        raise
    yield from block.end()


async def rebuild_in_task(world: World, filter_: Any, ref: str) -> None:
    """Rebuild an asyncio filter."""
    async with filter_.rebuild(**_options(ref)) as new:
        for name in Source(world):
            await new.add(name)


def _options(ref: str) -> dict[str, Any]:
    drawn = sum(map(ord, ref))
    capacity = _CAPACITIES[drawn % len(_CAPACITIES)]
    return {"capacity": capacity, "error_rate": None, "timeout": TIMEOUT, "take_over": drawn % 4 == 0}


class Source:
    """The items in the filter when a rebuild has begun."""

    def __init__(self, world: World) -> None:
        _, counts = world.observe(world.server.data)
        self._history, self._begun = world.history, world.history.step
        self._items = [item for item, count in enumerate(counts) if count]

    def __iter__(self) -> Iterator[str]:
        """Yield the items one by one, without those added since."""
        yield from (NAMES[item] for item in self._items if not self._was_added(item))

    def _was_added(self, item: int) -> bool:
        """Return whether the server itself answered an add that began after the rebuild."""
        requests = self._history.requests[item]
        if any(each.state == "unknown" for each in requests):  # whose answer may come from a receipt
            return False
        return any(
            each.verb == "add"
            and each.state == "answered"
            and each.started > self._begun
            and each.earlier is None
            and not each.owner.cache_seconds
            for each in requests
        )
