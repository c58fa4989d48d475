"""A simulated world with a filter of many keys: calls are recorded, and judged at the end."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import redis

from bloomredis.errors import BatchInterruptedError
from bloomredis.operations.claims.state import ClaimOptions
from tests.history import seats
from tests.history.calls import Ask
from tests.rules.calls import Call as Record
from tests.simulation.actions import Scenario
from tests.simulation.calls import ended
from tests.simulation.environment import Environment
from tests.simulation.history import Violation
from tests.simulation.many.debts import Debts, called
from tests.simulation.many.kinds import KEY, KINDS, NAMES, STRAY_SECONDS, terms
from tests.simulation.many.watch import Watch
from tests.simulation.network import Exchange
from tests.simulation.outcomes import is_refused
from tests.simulation.processes import Call, Owner, SoftTimeLimit
from tests.simulation.server import Server
from tests.simulation.stage import Stage

EXTENDED: Final = 3.0
"""Seconds for which a claim is extended."""

_GONE: Final = (SoftTimeLimit, GeneratorExit)
_DEEDS: Final = ("commit", "release", "extend")


@dataclass
class Held:
    """A claim that an object holds, and its end.

    :ivar ending: the verb that ends it, also after calls without an answer.
    """

    record: Record
    owner: Owner
    value: Any
    busy: bool = False
    ending: Record | None = None


class ManyWorld(Stage):
    """The state of a run.

    :ivar records: all calls.
    :ivar told: names of objects that have raised a loss and not handled it.
    :ivar away_until: when the last node is back, by the clients' clock.
    """

    stray_seconds = STRAY_SECONDS

    def __init__(self, scenario: Scenario, environment: Environment, servers: Sequence[Server]) -> None:
        self.kind = KINDS[scenario.kind]
        self.options = dict(scenario.options)
        super().__init__(scenario, environment, servers[: self.options["nodes"]])
        self.terms = terms(self.kind.name, on_lost=self.options["on_lost"], claims=self.options["claims"])
        self.watch = Watch(self.kind.name, [server.data for server in self.servers])
        self.records: list[Record] = []
        self.debts = Debts(self.records, environment.wall_error)
        self.held: dict[str, Held] = {}
        self.told: dict[str, None] = {}
        self.away_until = 0.0
        self._cancelled: list[tuple[Record, Owner]] = []
        self._asked: dict[str, tuple[Ask, list[Record]]] = {}
        for setup in scenario.processes:
            self.begin_process(setup)

    def made(self, owner: Owner, options: dict[str, Any]) -> Any:
        given = self.kind.options | {"on_lost": self.terms.on_lost} | options
        if owner.process.loop is not None:
            return self.kind.asynchronous(self.client(owner), KEY, **given)
        return self.kind.operations(KEY, **given)

    def notice(self, why: str) -> None:
        self.watch.look(why, is_call=False)
        self.drop_old()
        self._go_on_with_cancelled()

    def executed(self, exchange: Exchange, verb: str, reply: Any) -> None:
        wrong = self.watch.look(f"{verb} for {exchange.ref}", is_call=True)
        call = self.calls.get(exchange.ref)
        if wrong and call is not None and call.requests[0].verb not in ("clear", "delete"):
            raise Violation("replaced", f"{call.requests[0]} {wrong}")

    def replied(self, exchange: Exchange) -> None:
        pass

    def execute(self, ref: str) -> None:
        exchange = self.network.exchanges.get(ref)
        if exchange is None or not exchange.place or self.environment.now >= self.away_until:
            super().execute(ref)
            return
        error = redis.exceptions.ConnectionError("The server is away")
        self.go_on(
            exchange.owner,
            lambda: self.network.break_connection(exchange, error, self.server.data.now, late=False),
        )

    def _go_on_with_cancelled(self) -> None:
        """Extend a cancelled call while its object is busy, or pauses: others may share it."""
        busy = {id(exchange.owner) for exchange in self.network.exchanges.values()}
        for record, _ in self._cancelled:
            record.end = self.watch.now()
        self._cancelled = [
            (record, owner)
            for record, owner in self._cancelled
            if id(owner) in busy or owner.process.loop.has_own_work
        ]

    # -- calls

    def start(self, ref: str, name: str, verb: str, items: Sequence[int], other: str | None) -> None:
        """Start a call on a filter object.

        :param other: the call that this one retries, or whose claim it is about.
        """
        owner = self.owners.get(name)
        if owner is None or ref in self.calls:
            return
        names = [NAMES[item] for item in items]
        ask = self._deed(verb, owner, other) if verb in _DEEDS else self.debts.ask(verb, owner, names, other)
        if ask is None:
            return
        records = self._begun(ref, owner, ask)
        call = Call(ref, owner, records, self.ended)
        self._asked[ref] = ask, records
        self.calls[ref] = call
        self.enter(owner.process)
        if owner.process.loop is not None:
            self._start_task(call, ask)
            return
        self.check(owner.process)
        call.start(self._operation(owner, ask), self.send)

    def _operation(self, owner: Owner, ask: Ask) -> Any:
        if ask.verb == "contains":
            by_reading = len(self.servers) == 1 and not owner.process.is_cluster
            return owner.filter.contains(ask.items[0], by_reading=by_reading)
        return _OPERATIONS[ask.verb](owner.filter, ask)

    def _start_task(self, call: Call, ask: Ask) -> None:
        loop = call.owner.process.loop

        async def run() -> Any:
            return await seats.VERBS[ask.verb](call.owner.filter, ask)

        call.task = loop.start(run(), call.end)
        self.tasks[call.task] = call
        loop.run()

    def _deed(self, verb: str, owner: Owner, other: str | None) -> Ask | None:
        """Return the call for a claim; after a request for its end, the same again."""
        held = self.held.get(other or "")
        if held is None or held.busy or held.owner is not owner:
            return None
        if held.ending is not None and held.ending.verb != verb:
            return None
        held.busy = True
        earlier = (held.ending,) if held.ending else ()
        return Ask(verb, (held.record.item,), earlier, claim=(held.record, held.value), lease=EXTENDED)

    def _begun(self, ref: str, owner: Owner, ask: Ask) -> list[Record]:
        made = [
            Record(
                name=f"{ref}/{i}",
                owner=called(owner),
                verb=ask.verb.removesuffix("_many"),
                item=item,
                start=self.watch.now(),
                earlier=earlier.name if earlier else None,
                claim=ask.claim[0].name if ask.claim else None,
                lease=ask.lease,
                since=self.debts.since(called(owner), item) if ask.verb.startswith("add") else None,
            )
            for i, (item, earlier) in enumerate(
                zip(ask.items or ("",), ask.earlier or [None] * max(1, len(ask.items)), strict=True)
            )
        ]
        for i, record in enumerate(made if ask.verb == "claim_many" else ()):
            record.equal = next((each.name for each in made[:i] if each.item == record.item), None)
        self.records += made
        return made

    def settle(self, call: Call, answer: Any, error: BaseException | None) -> None:
        ask, records = self._asked.pop(call.ref)
        if isinstance(error, _GONE) or is_refused(error):
            error = asyncio.CancelledError()
        elif isinstance(error, BatchInterruptedError) and (
            isinstance(error.__cause__, _GONE) or is_refused(error.__cause__)
        ):
            error.__cause__ = asyncio.CancelledError()
        _, value = seats.ended(ask, records, answer, error, self.watch.now())
        if self._has_found_none(call.owner, records[0]):
            self.records.remove(records[0])
        name = call.owner.name
        if ask.verb in ("acknowledge", "clear", "delete"):
            self.told.pop(name, None)
        for record, one in zip(records, value if isinstance(value, list) else [value], strict=False):
            if record.verb == "claim" and record.answer == "claimed" and record.equal is None:
                self.held[record.name] = Held(record, call.owner, one)
        for record in records:
            if call.task is not None and "CancelledError" in record.error:
                self._cancelled.append((record, call.owner))
            self._remember(record, call.owner, ask.token)
            if record.state == "lost":
                self.told[name] = None

    def _has_found_none(self, owner: Owner, record: Record) -> bool:
        """Return whether a test has found no filter: a new object that recreates it knows no shards.

        They stay when the record is lost, and whoever knows them goes on.
        """
        is_none = record.verb == "contains" and record.answer is False and not owner.has_opened
        recreates = (self.kind.name, self.terms.on_lost) == ("sharded", "recreate")
        return is_none and recreates and self.watch.missing >= record.start

    def _remember(self, record: Record, owner: Owner, token: str | None) -> None:
        """Record pending calls, and the outcome of a claim."""
        held = self.held.get(record.claim or "")
        if held is not None:
            held.busy = False
            if record.verb != "extend":
                held.ending = record
            if record.state == "not held" or (record.state == "answered" and record.verb != "extend"):
                del self.held[record.claim or ""]
        elif record.state == "unknown" and record.verb in ("add", "claim"):
            self.debts.add(record, owner, token)

    def voided(self, call: Call) -> None:
        _, records = self._asked.pop(call.ref)
        for record in records:
            record.state, record.end, record.error = "unknown", self.watch.now(), "its process died"

    def away(self, seconds: float) -> None:
        """Make the last of several nodes unreachable for a while."""
        self.away_until = self.environment.now + seconds


def _same(held: Any) -> Any:
    return held


_OPERATIONS: Final[dict[str, Any]] = {
    **seats.VERBS,
    "claim": lambda f, ask: f.answer_one(f.claim(ask.items[0], ClaimOptions.of(ask.lease, None))),
    "claim_many": lambda f, ask: f.claim_many(ask.items, ask.lease, _same),
    "commit": lambda f, ask: ended(f, f.end("commit", ask.claim[1])),
    "release": lambda f, ask: ended(f, f.end("release", ask.claim[1])),
    "extend": lambda f, ask: ended(f, f.extend(ask.claim[1], ask.lease)),
}
