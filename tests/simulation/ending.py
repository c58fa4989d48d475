"""The end of a run with a filter in one key."""

from __future__ import annotations

from typing import Final

from tests.simulation.draining import call, drain
from tests.simulation.history import Request, Violation
from tests.simulation.kinds import ITEMS, KEY, MOST_CALLS
from tests.simulation.processes import Owner, Setup
from tests.simulation.rules import MOST_COUNTED
from tests.simulation.world import World
from tests.support.inside import inside

_MOST_SESSIONS: Final = 3 * MOST_CALLS
"""The most sessions of one object: each call in flight has one, and so has a failed call until its answer."""

_LAST: Final = Setup("end", ((("on_lost", "recreate"),),))


def finish(world: World) -> None:
    """End all calls, retry those without an answer, and check the final state."""
    world.server.replicas = 2
    drain(world)
    world.begin_process(_LAST)
    for number, request in enumerate(list(world.history.unknown)):
        _ask_again(world, request, number)
    for item in range(ITEMS):
        call(world, f"end{item}", "end.a", "contains", (item,), None)
    _check_count(world)
    for owner in world.owners.values():
        _check_memory(world, owner)
    call(world, "delete", "end.a", "delete", (), None)
    world.network.strays.clear()
    world.server.data.now += 3600 * 1_000_000
    if left := world.server.data.alive():
        raise Violation("left behind", f"after delete and all TTLs there is {left}")


def _ask_again(world: World, request: Request, number: int) -> None:
    """Retry for a pending answer: with the token elsewhere, or on the same object."""
    items, own = (request.item,), world.owners.get(request.owner.name) is request.owner
    if request.token:
        asked = request.owner.name if own and number % 2 else "end.a"
        call(world, f"again{number}", asked, request.verb, items, request.ref)
    elif own:
        call(world, f"again{number}", request.owner.name, request.verb, items, None)


def _check_memory(world: World, owner: Owner) -> None:
    """Check that an object keeps only answers that nobody got, and sessions to reuse."""
    world.enter(owner.process)
    world.check(owner.process)
    f = owner.filter if owner.process.loop is None else inside(owner.filter)
    ledgers = [f.pending, f.removals] if hasattr(f, "removals") else [f.pending]
    generation = f.stored.handle and f.stored.handle.generation  # a void answer is dropped on request
    entries = sum(
        each.generation == generation for ledger in ledgers for own in ledger.items.values() for each in own
    )
    owed = sum(each.owner is owner for each in world.history.unknown)
    # A call that a full filter refused when it was made again is kept: its first attempt may still arrive.
    of_items = (each for requests in world.history.requests for each in requests)
    owed += sum(each.owner is owner and each.state == "void" and each.is_repeated for each in of_items)
    is_back = world.history.rolled_back >= 0  # then entries of a generation that was lost have a use again
    if (entries > owed and not is_back) or len(f.sessions.free) > _MOST_SESSIONS:
        raise Violation(
            "memory",
            f"{owner} has {entries} entries for {owed} answers, and {len(f.sessions.free)} free sessions",
        )


def _check_count(world: World) -> None:
    """Check the count in the header; the module counts its items itself.

    A load counts the items that it added by a separate call, whose count of new items is not kept anywhere.
    """
    value = world.server.data.find(KEY.encode())
    counted = sum(world.history.stored.entry.counts)
    loads = [each for requests in world.history.requests for each in requests if each.is_load]
    is_unsure = any(each.state != "answered" or each.is_repeated for each in loads)
    is_unsure = is_unsure or any(MOST_COUNTED in entry.counts for entry in world.history.log)
    if is_unsure or (loads and world.history.rolled_back >= 0) or not isinstance(value, bytes):
        return
    if (count := int.from_bytes(value[56:64], "big")) != counted:
        raise Violation("count", f"the header counts {count} items, and {counted} are in")
