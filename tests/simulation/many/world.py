"""One simulated world with a filter of many keys: calls are recorded, and judged when all is over."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import redis

from bloomredis.errors import BatchInterruptedError
from tests.history import seats
from tests.history.calls import Ask
from tests.history.calls import Call as Record
from tests.history.plans import Kind
from tests.simulation.entries import prepared_add
from tests.simulation.environment import Environment
from tests.simulation.many.kinds import KEY, KINDS, NAMES, STRAY_SECONDS, SimulatedPlan
from tests.simulation.many.watch import SLOW, Watch
from tests.simulation.network import Exchange, verb_of
from tests.simulation.outcomes import SoftTimeLimit
from tests.simulation.processes import Call, Owner
from tests.simulation.server import Server
from tests.simulation.stage import Scenario, Stage

LEASE: Final = 1.0
EXTENDED: Final = 3.0
ASKED_AGAIN_SECONDS: Final = 100.0
"""How long after a call its caller may ask for its answer."""

_GONE: Final = (SoftTimeLimit, GeneratorExit)
_DEEDS: Final = ("commit", "release", "extend")


@dataclass
class Held:
    """A claim that an object holds, and what is done with it.

    :ivar ending: the call that shall end it, of which there may have been some without an answer.
    """

    record: Record
    owner: Owner
    value: Any
    busy: bool = False
    ending: Record | None = None


class ManyWorld(Stage):
    """The state of a run.

    :ivar records: all calls.
    :ivar owed: those without an answer, by their names.
    :ivar handed: objects with the items that they must not be asked about: others have the tokens.
    :ivar told: names of objects that were told of a loss, and have not dealt with it.
    :ivar away_until: when the last server is back, by the clients' clock.
    """

    stray_seconds = STRAY_SECONDS

    def __init__(self, scenario: Scenario, environment: Environment, servers: Sequence[Server]) -> None:
        self.kind = KINDS[scenario.kind]
        self.options = dict(scenario.options)
        super().__init__(scenario, environment, servers[: self.options["servers"]])
        name: Kind = self.kind.name
        self.plan = SimulatedPlan(
            *("", name, 0, 0.0, 0.0), on_lost=self.options["on_lost"], claims=self.options["claims"]
        )
        self.watch = Watch(name, [server.data for server in self.servers])
        self.records: list[Record] = []
        self.owed: dict[str, tuple[Record, Owner]] = {}
        self.handed: set[tuple[str, str]] = set()
        self.held: dict[str, Held] = {}
        self.told: dict[str, None] = {}
        self.away_until = 0.0
        self._cancelled: list[tuple[Record, Owner]] = []
        self._asked: dict[str, tuple[Ask, list[Record]]] = {}
        self._looks: dict[str, tuple[Exchange, float]] = {}
        self._late: list[tuple[str, float, float, float]] = []
        for setup in scenario.processes:
            self.begin_process(setup)

    def made(self, owner: Owner, options: dict[str, Any]) -> Any:
        given = self.kind.options | {"on_lost": self.plan.on_lost} | options
        several = range(len(self.servers))
        if owner.process.loop is not None:
            clients = [self.client(owner, place) for place in several]
            return self.kind.asynchronous(clients if len(clients) > 1 else clients[0], KEY, **given)
        operations = self.kind.operations(KEY, **given)
        if len(several) > 1:
            operations.over(len(several))
        return operations

    def disturbed(self, what: str) -> None:
        if what == "jump":
            self.owed.clear()

    def notice(self, why: str) -> None:
        self.watch.look(why)
        self.drop_old()
        self._note_looks()
        self._go_on_with_cancelled()

    def executed(self, exchange: Exchange, verb: str, reply: Any) -> None:
        self.watch.look(f"{verb} for {exchange.ref}")

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
        """Let a cancelled call last for as long as its object is busy: others may share it."""
        busy = {id(exchange.owner) for exchange in self.network.exchanges.values()}
        for record, _ in self._cancelled:
            record.end = self.watch.now()
        self._cancelled = [each for each in self._cancelled if id(each[1]) in busy]

    # -- looks at the record of a sharded filter

    def _note_looks(self) -> None:
        """Note whose look at the record came too late: all calls beside it may be about what was lost."""
        if self.kind.name != "sharded":
            return
        now = self.watch.now()
        for ref, exchange in self.network.exchanges.items():
            if ref not in self._looks and self._known(exchange) is not None:
                self._looks[ref] = exchange, now
        for ref, (exchange, sent) in list(self._looks.items()):
            if self.network.exchanges.get(ref) is exchange:
                continue
            del self._looks[ref]
            ended = self.watch.ended.get(self._known(exchange) or b"")
            if ended is not None:
                self._late.append((self._owner(exchange.owner), sent, now, ended))

    @staticmethod
    def _known(exchange: Exchange) -> bytes | None:
        """Return the generation that a look at the record knows."""
        looks = (each for each in exchange.commands if verb_of(each) == "record_shard")
        return next((bytes(each[4][40:48]) for each in looks), None)

    def excuse(self) -> None:
        """Note of each call beside a late look that it may be about what was lost."""
        for owner, begun, end, since in self._late:
            until = max(end, self.watch.later(begun, SLOW))
            for record in self.records:
                if record.owner == owner and record.start <= until and record.end >= begun:
                    record.since = min(since, record.start if record.since is None else record.since)

    # -- calls

    def start(self, ref: str, name: str, verb: str, items: Sequence[int], other: str | None) -> None:
        """Let a filter object be called.

        :param other: the call that this one asks again for, or whose claim it is about.
        """
        owner = self.owners.get(name)
        if owner is None or ref in self.calls:
            return
        ask = self._deed(verb, owner, other) if verb in _DEEDS else self._ask(verb, owner, items, other)
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
        plain = verb == "add" and ask.token is None and len(self.servers) == 1
        prepared = prepared_add(owner.filter, ask.items[0], self.environment.now) if plain else None
        call.start(prepared or _OPERATIONS[verb](owner.filter, ask), self.send)

    def _start_task(self, call: Call, ask: Ask) -> None:
        loop = call.owner.process.loop

        async def run() -> Any:
            return await seats.VERBS[ask.verb](call.owner.filter, ask)

        call.task = loop.start(run(), call.end)
        self.tasks[call.task] = call
        loop.run()

    def _ask(self, verb: str, owner: Owner, items: Sequence[int], other: str | None) -> Ask | None:
        names = [NAMES[item] for item in items]
        if verb.startswith("add") and self.handed.intersection((self._owner(owner), name) for name in names):
            return None
        if other is None:
            return Ask(verb, names, self._remembered(owner, names) if "add" in verb else (), lease=LEASE)
        earlier, asker = self.owed.get(other, (None, None))
        if earlier is None or asker is None:
            return None
        alone = asker is owner and len(self._owed_to(owner, names[0])) == 1
        token = earlier.token if self._is_quiet(earlier) and (not alone or len(self.records) % 2) else None
        if token is None and not alone:
            return None
        del self.owed[other]
        if asker is not owner:
            self.handed.add((earlier.owner, earlier.item))
        return Ask(verb, names, (earlier,), token=token, lease=LEASE)

    def _owed_to(self, owner: Owner, item: str) -> list[Record]:
        return [each for each, asker in self.owed.values() if asker is owner and each.item == item]

    def _remembered(self, owner: Owner, items: Sequence[str]) -> list[Record | None]:
        """Return the calls whose answers an object has to give, though it is not asked again for them.

        Of several about an item it is not known which comes first, and nobody asks again for those.
        """
        found: list[Record | None] = []
        for item in items:
            owed = self._owed_to(owner, item)
            for each in owed:
                del self.owed[each.name]
            found.append(owed[0] if len(owed) == 1 else None)
        return found

    def _is_quiet(self, call: Record) -> bool:
        """Return whether no other call of its object may have been answered in its place."""
        return not any(
            each.verb == "add" and each.end > call.start and each is not call
            for each in self.records
            if (each.owner, each.item) == (call.owner, call.item)
        )

    def _deed(self, verb: str, owner: Owner, other: str | None) -> Ask | None:
        """Return what is to be done with a claim: once an end was asked for, that again."""
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
                owner=self._owner(owner),
                verb=ask.verb.removesuffix("_many"),
                item=item,
                start=self.watch.now(),
                earlier=earlier.name if earlier else None,
                claim=ask.claim[0].name if ask.claim else None,
                lease=ask.lease,
            )
            for i, (item, earlier) in enumerate(
                zip(ask.items or ("",), ask.earlier or [None] * max(1, len(ask.items)), strict=True)
            )
        ]
        self.records += made
        return made

    @staticmethod
    def _owner(owner: Owner) -> str:
        return f"{owner.name} of {owner.process.pid}"

    def settle(self, call: Call, answer: Any, error: BaseException | None) -> None:
        ask, records = self._asked.pop(call.ref)
        if isinstance(error, _GONE):
            error = asyncio.CancelledError()
        elif isinstance(error, BatchInterruptedError) and isinstance(error.__cause__, _GONE):
            error.__cause__ = asyncio.CancelledError()
        _, value = seats.ended(ask, records, answer, error, self.watch.now())
        name = call.owner.name
        if ask.verb in ("reserve", "clear", "delete"):
            self.told.pop(name, None)
        for record, one in zip(records, value if isinstance(value, list) else [value], strict=False):
            if record.verb == "claim" and record.answer == "claimed":
                self.held[record.name] = Held(record, call.owner, one)
        if call.task is not None and isinstance(error, asyncio.CancelledError):
            self._cancelled += [(record, call.owner) for record in records]
        for record in records:
            self._remember(record, call.owner)
            if record.state == "lost":
                self.told[name] = None

    def _remember(self, record: Record, owner: Owner) -> None:
        """Remember what is owed, and what became of a claim."""
        held = self.held.get(record.claim or "")
        if held is not None:
            held.busy = False
            if record.verb != "extend":
                held.ending = record
            if record.state == "not held" or (record.state == "answered" and record.verb != "extend"):
                del self.held[record.claim or ""]
        elif record.state == "unknown" and record.verb in ("add", "claim"):
            self.owed[record.name] = record, owner

    def voided(self, call: Call) -> None:
        _, records = self._asked.pop(call.ref)
        for record in records:
            record.state, record.end, record.error = "unknown", self.watch.now(), "its process died"

    def may_ask(self) -> list[tuple[Record, Owner]]:
        """Return the calls that may be asked again for, the latest last."""
        now = self.watch.now()
        for name, (record, _) in list(self.owed.items()):
            if now - record.start > ASKED_AGAIN_SECONDS:
                del self.owed[name]
        return list(self.owed.values())

    def away(self, seconds: float) -> None:
        """Let the last of several servers be away for a while."""
        self.away_until = self.environment.now + seconds


def _same(held: Any) -> Any:
    return held


_OPERATIONS: Final[dict[str, Any]] = {
    **seats.VERBS,
    "claim": lambda f, ask: f.claim(ask.items[0], ask.lease, _same),
    "claim_many": lambda f, ask: f.claim_many(ask.items, ask.lease, _same),
    "commit": lambda f, ask: f.commit(ask.claim[1]),
    "release": lambda f, ask: f.release(ask.claim[1]),
    "extend": lambda f, ask: f.extend(ask.claim[1], ask.lease),
}
