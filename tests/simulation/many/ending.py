"""The end of a schedule: calls end, the stored data is read, and the rules judge."""

from __future__ import annotations

from collections.abc import Iterator

from tests.rules.answers import History
from tests.rules.judging import all_violations
from tests.simulation.draining import call, drain
from tests.simulation.history import Violation
from tests.simulation.many.faults import EXPLAINING
from tests.simulation.many.kinds import ITEMS, NAMES
from tests.simulation.many.world import ManyWorld
from tests.simulation.processes import Setup

_LAST = Setup("end", ((("on_lost", "recreate"),),))
_SHARD_MS = 60_000


def finish(world: ManyWorld) -> None:
    """End all calls, retry those without an answer, and judge."""
    world.away_until = 0.0
    drain(world)
    world.begin_process(_LAST)
    for number, (record, owner) in enumerate(world.debts.all(world.watch.now())):
        own = world.owners.get(owner.name) is owner
        if own or record.token:
            asked = owner.name if own else "end.a"
            call(world, f"again{number}", asked, record.verb, (NAMES.index(record.item),), record.name)
    known = len(world.records)
    call(world, "open", "end.a", "create", (), None)  # which finds out that the record was lost
    del world.records[known:]
    for item in range(ITEMS):
        call(world, f"end{item}", "end.a", "contains", (item,), None)
    present = {record.item: record.answer is True for record in world.records[known:]}
    last = world.records[known:] if world.terms.kind == "rotating" else []
    del world.records[known:]
    losses = list(world.watch.losses)
    call(world, "delete", "end.a", "delete", (), None)
    del world.records[known:]
    world.records += last
    history = History(world.terms, world.records, losses, present, left=list(_left(world)))
    for told in _told(history, world):
        what, _, _ = told.partition(":")
        raise Violation(_rule(what), told)


def _left(world: ManyWorld) -> Iterator[str]:
    """Yield the keys that never expire or hold items, except layers whose record was lost."""
    lost = any("record" in loss.what for loss in world.watch.losses)
    for server in world.servers:
        for key in server.data.alive():
            deadline = server.data.deadlines.get(key)
            ttl = -1 if deadline is None else deadline - server.data.now // 1000
            layer = b":layer:" in key and not lost
            if ttl == -1 or layer or (b":" in key and b"}:" not in key and ttl > _SHARD_MS):
                yield key.decode()


def _told(history: History, world: ManyWorld) -> Iterator[str]:
    if not world.scenario.faults & EXPLAINING:
        yield from (f"no answer: {record}" for record in history.calls if record.state == "unknown")
    yield from all_violations(history)


def _rule(text: str) -> str:
    """Return the name of a rule: a violation's text without its subject."""
    words = text.split("\n", maxsplit=1)[0].split(" after ", maxsplit=1)[0].split()
    return " ".join(word for word in words if not any(sign.isdigit() for sign in word))
