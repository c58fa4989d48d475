"""The end of a run with a filter in one key."""

from __future__ import annotations

from typing import Final

from tests.simulation.draining import call, drain
from tests.simulation.history import Request, Violation
from tests.simulation.kinds import ITEMS, KEY
from tests.simulation.processes import Setup
from tests.simulation.world import World

_LAST: Final = Setup("end", ((("on_lost", "recreate"),),))


def finish(world: World) -> None:
    """Bring all calls to an end, ask again for what had no answer, and look at what is left."""
    world.server.denied, world.server.replicas = frozenset(), 2
    drain(world)
    world.begin_process(_LAST)
    for number, request in enumerate(list(world.history.unknown)):
        _ask_again(world, request, number)
    for item in range(ITEMS):
        call(world, f"end{item}", "end.a", "contains", (item,), None)
    _check_count(world)
    call(world, "delete", "end.a", "delete", (), None)
    world.network.strays.clear()
    world.server.data.now += 3600 * 1_000_000
    if left := world.server.data.alive():
        raise Violation("left behind", f"after delete and all TTLs there is {left}")


def _ask_again(world: World, request: Request, number: int) -> None:
    """Ask for an answer that is owed: with the token elsewhere, or the same object."""
    items, own = (request.item,), world.owners.get(request.owner.name) is request.owner
    if request.token:
        asked = request.owner.name if own and number % 2 else "end.a"
        call(world, f"again{number}", asked, request.verb, items, request.ref)
    elif own:
        call(world, f"again{number}", request.owner.name, request.verb, items, None)


def _check_count(world: World) -> None:
    """Check the count in the header; the module counts its items itself.

    A load counts the items that it has added: that is a call of its own.
    """
    value = world.server.data.find(KEY.encode())
    counted = sum(world.history.stored.entry.counts)
    loads = [each for requests in world.history.requests for each in requests if each.is_load]
    unsure = sum(each.state != "answered" or world.history.is_excused(each) for each in loads)
    if loads and world.history.rolled_back >= 0:
        unsure = len(loads)
    if isinstance(value, bytes) and abs(int.from_bytes(value[56:64], "big") - counted) > unsure:
        count = int.from_bytes(value[56:64], "big")
        raise Violation("count", f"the header counts {count} items, and {counted} are in")
