"""Rebuilds of a filter from a source that has all of its items, so that none may be missed afterwards."""

from __future__ import annotations

from collections.abc import Generator
from typing import TYPE_CHECKING, Any, Final

from tests.simulation.kinds import NAMES

if TYPE_CHECKING:
    from tests.simulation.world import World

TIMEOUT: Final = 30.0
_CAPACITIES: Final = (None, 40, 300)


def rebuild(world: World, operations: Any, ref: str) -> Generator[Any, Any, None]:
    """Do what the context manager does for threads."""
    block = operations.rebuild(**_options(ref))
    new = yield from block.begin()
    try:
        yield from new.add_many(_source(world))
    except Exception:
        yield from block.abandon()
        raise
    yield from block.end()


async def rebuild_in_task(world: World, filter_: Any, ref: str) -> None:
    """Rebuild an asyncio filter."""
    async with filter_.rebuild(**_options(ref)) as new:
        await new.add_many(_source(world))


def _options(ref: str) -> dict[str, Any]:
    drawn = sum(map(ord, ref))
    capacity = _CAPACITIES[drawn % len(_CAPACITIES)]
    return {"capacity": capacity, "error_rate": None, "timeout": TIMEOUT, "take_over": drawn % 4 == 0}


def _source(world: World) -> list[str]:
    """Return the items that are in by now."""
    _, counts = world.observe(world.server.data)
    return [name for name, count in zip(NAMES, counts, strict=True) if count]
