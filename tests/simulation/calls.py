"""The calls of filter objects: the operation of each, and the requests that it answers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final

from bloomredis import arguments
from bloomredis.asyncio import Claim
from bloomredis.operations.claims.state import ClaimOptions
from tests.simulation.entries import in_local_cache
from tests.simulation.history import Request
from tests.simulation.kinds import NAMES
from tests.simulation.processes import Call, Owner
from tests.support.inside import renewed

if TYPE_CHECKING:
    from tests.simulation.world import World

LEASE: Final = 2.0
EXTENDED: Final = 20.0
EXPIRY: Final = 10.0
MOST_COUNTED: Final = 8
"""The most adds of one item in a counting filter, since a counter at 15 stays there."""

OF_A_CLAIM: Final = ("commit", "release", "extend", "renew", "hand_over")
OF_CLAIMS: Final = ("commit_many", "release_many", "extend_many")
HOLDERS: Final = ("unit 0", "unit 1")


def begin(world: World, call: Call, verb: str, items: Sequence[int], other: str | None) -> None:
    """Begin a call, unless it makes no sense by now.

    :param other: the request whose token the call carries, or whose claim it is about; several are
    separated by commas.
    """
    owner = call.owner
    others = [world.requests.get(each) for each in other.split(",")] if other is not None else []
    earliest = [each for each in others if each is not None and _fits(world, verb, owner, each)]
    if len(earliest) < len(others):
        return
    if verb == "hand_over":
        _hand_over(world, owner, earliest[0])
        return
    if verb == "update" and owner.process.loop is not None:
        return  # it hands its computation to a thread
    earlier = earliest[0] if earliest else None
    adds = world.kind.counts and verb.startswith(("add", "update"))
    if adds and any(_counted(world, item) >= MOST_COUNTED for item in items):
        return
    call.requests = (
        _deeds(call.ref, owner, verb, earliest)
        if verb in OF_A_CLAIM or verb in OF_CLAIMS
        else _requests(call.ref, owner, verb, items, earlier)
    )
    for request in call.requests:
        world.history.begin(request, *world.clocks())
        world.requests[request.ref] = request
        owner.begin(request)
    for claim, request in zip(earliest, call.requests, strict=False):
        if request.verb in ("release", "commit"):
            claim.ending = request.verb
        if request.verb == "release":
            world.claims.giving_back(request.held)
    world.calls[call.ref] = call
    world.enter(owner.process)
    (_start if owner.process.loop is None else _start_task)(world, call, verb, items)


def _fits(world: World, verb: str, owner: Owner, earlier: Request) -> bool:
    """Return whether a token exists to carry, or a claim that this object may use.

    A token carries the time, so it is used only where the wall clock agrees with that of its process.
    """
    deed = verb.removesuffix("_many")
    wall_error = world.environment.wall_error(owner.process.pid)
    if deed in OF_A_CLAIM:
        if earlier.held is None or earlier.verb != "claim":
            return False
        running = [each.verb for each in earlier.owner.running if each.held is earlier.held]
        if deed == "hand_over":
            agrees = wall_error == world.environment.wall_error(earlier.owner.process.pid)
            return agrees and not running and earlier.ending in (None, "commit")
        if earlier.owner is not owner:
            return False
        if deed == "renew":
            return "renew" not in running
        return set(running) <= {"renew"} and earlier.ending in (None, deed)
    return earlier.token is not None and earlier.wall_error == wall_error


def _hand_over(world: World, owner: Owner, claim: Request) -> None:
    """Give a claim, perhaps with its pending commit, to another object by its token."""
    was, (f, given) = claim.held, (claim.owner.filter, owner.filter)
    world.enter(owner.process)
    token = was.token if claim.owner.process.loop is not None else f.token(was)
    claim.held = Claim.from_token(given, token) if owner.process.loop is not None else given.from_token(token)
    claim.owner, claim.renews = owner, False
    for each in world.history.left:
        if each.held is was:
            each.held = claim.held


def _counted(world: World, item: int) -> int:
    unsettled = sum(each.state != "answered" for each in world.history.requests[item])
    return world.history.stored.entry.counts[item] + unsettled


def _deeds(ref: str, owner: Owner, verb: str, claims: Sequence[Request]) -> list[Request]:
    """Return the requests that end or extend claims."""
    made = []
    for i, claim in enumerate(claims):
        request = Request(f"{ref}/{i}", verb.removesuffix("_many"), claim.item, owner)
        request.held, request.is_single = claim.held, verb in OF_A_CLAIM
        request.lease = int((LEASE if verb == "renew" else EXTENDED) * 1e6)
        made.append(request)
    return made


def _requests(
    ref: str, owner: Owner, verb: str, items: Sequence[int], earlier: Request | None
) -> list[Request]:
    if not items:
        return [Request(ref, verb, -1, owner)]
    single = "add" if verb == "update" else verb.removesuffix("_many").removesuffix("_as")
    made = [
        Request(ref if len(items) == 1 else f"{ref}/{i}", single, item, owner, earlier)
        for i, item in enumerate(items)
    ]
    for request in made:
        request.lease = int(LEASE * 1e6)
        request.is_load = verb == "update"
        request.is_single = not (verb.endswith("_many") or request.is_load)
        request.renews = verb == "claim" and owner.process.loop is not None and sum(map(ord, ref)) % 2 == 0
        request.holder = HOLDERS[sum(map(ord, ref)) % len(HOLDERS)] if verb == "claim_as" else None
    return made


def _start(world: World, call: Call, verb: str, items: Sequence[int]) -> None:
    """Start a call as a thread does."""
    world.check(call.owner.process)
    operations, item = call.owner.filter, NAMES[items[0]] if items else ""
    is_plain = verb in ("add", "contains") and call.requests[0].earlier is None
    if is_plain and in_local_cache(operations, item):
        call.end(verb == "contains", None)
        return
    call.start(_operation(world, call, verb, items), world.send)


def _operation(world: World, call: Call, verb: str, items: Sequence[int]) -> Any:
    operations, request = call.owner.filter, call.requests[0]
    if verb in OF_CLAIMS:
        return _of_many(operations, verb, [each.held for each in call.requests])
    return _VERBS[verb](operations, request, [NAMES[item] for item in items])


def _of_many(f: Any, verb: str, claims: list[Any]) -> Any:
    """Return the call about several claims, of operations or of an asyncio filter."""
    if hasattr(f, "with_client"):
        return getattr(f, verb)(claims, *([EXTENDED] if verb == "extend_many" else []))
    return f.change_many(verb.removesuffix("_many"), claims, claims, arguments.lease(EXTENDED))


def _start_task(world: World, call: Call, verb: str, items: Sequence[int]) -> None:
    """Start a call as a task."""
    loop = call.owner.process.loop
    made = _TASKS.get(verb, _VERBS.get(verb))

    async def run() -> Any:
        if verb in OF_CLAIMS:
            return await _of_many(call.owner.filter, verb, [each.held for each in call.requests])
        assert made is not None
        return await made(call.owner.filter, call.requests[0], [NAMES[item] for item in items])

    call.task = loop.start(run(), call.end)
    world.tasks[call.task] = call
    loop.run()


def _same(held: Any) -> Any:
    return held


def ended(operations: Any, request: Any) -> Any:
    """Run a request about a claim; it has no answer."""
    yield from operations.answer_one(request)


def _token(request: Request) -> str | None:
    return None if request.earlier is None else request.earlier.token


_VERBS: Final[dict[str, Callable[[Any, Request, list[str]], Any]]] = {
    "add": lambda f, request, items: f.add(items[0], token=_token(request)),
    "add_many": lambda f, _, items: f.add_many(items),
    "contains": lambda f, request, items: f.contains(
        items[0], by_reading=not request.owner.process.is_cluster
    ),
    "contains_many": lambda f, _, items: f.contains_many(items),
    "remove": lambda f, request, items: f.remove(items[0], token=_token(request)),
    "create": lambda f, _, __: f.create(),
    "update": lambda f, _, items: f.update(iter([items])),
    "info": lambda f, _, __: f.info(),
    "expire": lambda f, _, __: f.expire(EXPIRY),
    "clear": lambda f, _, __: f.clear(),
    "delete": lambda f, _, __: f.delete(),
    "acknowledge": lambda f, _, __: f.acknowledge(),
    "claim": lambda f, _, items: f.answer_one(f.claim(items[0], ClaimOptions.of(LEASE, None))),
    "claim_as": lambda f, request, items: f.answer_one(
        f.claim(items[0], ClaimOptions.of(LEASE, request.holder))
    ),
    "claim_many": lambda f, _, items: f.claim_many(items, LEASE, _same),
    "commit": lambda f, request, _: ended(f, f.end("commit", request.held)),
    "release": lambda f, request, _: ended(f, f.end("release", request.held)),
    "extend": lambda f, request, _: ended(f, f.extend(request.held, EXTENDED)),
    "renew": lambda f, request, _: f.renew_many([request.held]),
}
_TASKS: Final[dict[str, Callable[[Any, Request, list[str]], Any]]] = {
    "contains": lambda f, _, items: f.contains(items[0]),
    "acknowledge": lambda f, _, __: f.acknowledge(),
    "claim": lambda f, request, items: f.claim(items[0], lease=LEASE, renew=request.renews),
    "claim_as": lambda f, request, items: f.claim(items[0], lease=LEASE, owner=request.holder),
    "claim_many": lambda f, _, items: f.claim_many(items, lease=LEASE),
    "commit": lambda _, request, __: request.held.commit(),
    "release": lambda _, request, __: request.held.release(),
    "extend": lambda _, request, __: request.held.extend(EXTENDED),
    "renew": lambda f, request, _: renewed(f, [request.held]),
}
