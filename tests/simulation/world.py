"""A simulated world with a filter in one key, and the facts that its rules need."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Any, Final

from bloomredis.protocol import replies
from bloomredis.stored.header import ACKNOWLEDGED, FLAGS_BYTE, GENERATION
from tests.simulation import outcomes
from tests.simulation.actions import Action, Scenario
from tests.simulation.calls import begin
from tests.simulation.claim_rules import ClaimRules
from tests.simulation.database import Snapshot, what_is
from tests.simulation.environment import Environment
from tests.simulation.history import History, Request, Stored, Violation, state_of
from tests.simulation.kinds import (
    ITEMS,
    KEY,
    KINDS,
    NAMES,
    Kind,
    claim_key,
)
from tests.simulation.network import Exchange, Message, owners_in, verb_of
from tests.simulation.processes import READING, Call, Owner
from tests.simulation.rules import Rules
from tests.simulation.server import Server
from tests.simulation.stage import Stage

OLDER_STATES: Final = 8
"""The number of writes that a rollback may lose."""


class World(Stage):
    """The state of a run.

    :ivar requests: all requests by name; those `held` have a claim.
    """

    def __init__(self, scenario: Scenario, environment: Environment, servers: Sequence[Server]) -> None:
        super().__init__(scenario, environment, servers[:1])
        self.kind: Kind = KINDS[scenario.kind]
        self.history = History(ITEMS, self.clocks)
        self.rules = Rules(
            self.history, self.clocks, counts=self.kind.counts, marks=self.kind.name != "module"
        )
        self.claims = ClaimRules(self.history, lambda: self.server.data.now)
        encode = dict(scenario.options).get("encode") or str.encode
        items = [encode(name) for name in NAMES]
        self.observe = self.kind.observer(items)
        self._claim_keys = [claim_key(item) for item in items]
        self.requests: dict[str, Request] = {}
        self.held: list[Request] = []
        self._is_awaited = True  # about the message in execution
        self.older: deque[tuple[Snapshot, Stored]] = deque(maxlen=OLDER_STATES)
        for setup in scenario.processes:
            self.begin_process(setup)

    def apply(self, action: Action) -> None:
        self.history.step += 1
        super().apply(action)
        for request in self.held:
            loop = request.owner.process.loop
            renews = request.renews and state_of(request.held).is_renewable
            if renews and not (loop.is_closed() or loop.has_own_work):
                raise Violation("not renewed", f"nothing renews the claim of {request} any more")

    def notice(self, why: str) -> None:
        self.history.observe(self.environment.now, *self.observe(self.server.data), "", ())

    def made(self, owner: Owner, options: dict[str, Any]) -> Any:
        given = self.kind.options | dict(self.scenario.options) | options
        if owner.process.loop is None:
            return self.kind.operations(KEY, **given)
        return self.kind.asynchronous(self.client(owner), KEY, **given)

    def start(self, ref: str, name: str, verb: str, items: Sequence[int], other: str | None) -> None:
        owner = self.owners.get(name)
        if owner is not None and ref not in self.calls:
            begin(self, Call(ref, owner, (), self.ended), verb, items, other)

    def waiting(self, owner: Owner) -> list[Request]:
        """Return the running requests and those cancelled meanwhile, which a shared batch may be for."""
        left = [each for each in self.history.unknown if each.owner is owner and each.token is None]
        return [each for each in (*owner.running, *left) if each.verb in ("add", "contains")]

    def settle(self, call: Call, answer: Any, error: BaseException | None) -> None:
        outcomes.settle(self, call, answer, error)

    def voided(self, call: Call) -> None:
        for request in call.requests:
            self.history.end(request, "void", *self.clocks())

    def run(self, message: Message) -> None:
        self._command = message.exchange.commands[len(message.replies)]
        if "rollback" in self.scenario.faults:
            self.older.append((self.server.data.snapshot(), self.history.stored))
        self._is_awaited = message is message.exchange.message
        named = {part for part in self._command if isinstance(part, bytes) and what_is(part) != "filter"}
        for request in self.requests_of(message.exchange, self._command):
            request.keys |= named
            request.is_repeated |= message.exchange.executions > 0
        super().run(message)

    def executed(self, exchange: Exchange, verb: str, reply: Any) -> None:
        generation, counts = self.observe(self.server.data)
        requests = self.requests_of(exchange, self._command)
        if verb == "commit":
            requests = self._about(requests)
        self.history.observe(self.environment.now, generation, counts, verb, requests)
        is_marked = _is_marked(self.server.data.find(KEY.encode()))
        if is_marked and generation not in self.history.acknowledged and verb != "clear":
            self._check_mark(generation, requests)
        if is_marked:
            self.history.acknowledged.setdefault(generation, self.history.step)
        if isinstance(reply, Exception):
            return
        if self._is_awaited and self._opens(exchange.owner, verb, requests, is_marked=is_marked):
            exchange.owner.opened(generation, len(self.history.log) - 1, requests, self.history.step)
        if verb == "reserve":
            self._check_making(requests)
        for request in requests:
            if request.verb == "clear" and verb in ("clear", "reserve") and request.emptied is None:
                request.emptied = len(self.history.log) - 1
        self._note_claims(generation, verb, requests, reply)

    def _check_mark(self, generation: bytes | None, requests: Sequence[Request]) -> None:
        """Check that a call on purpose has marked a filter, which it had opened."""
        for each in requests:
            if each.verb not in ("acknowledge", "clear"):
                raise Violation("marked by accident", f"{each} acknowledged a loss")
        if requests and all((each.opened or (0, None))[1] != generation for each in requests):
            raise Violation("marked unseen", f"{requests} marked a filter that none of them had opened")

    def _check_making(self, requests: Sequence[Request]) -> None:
        """Check that an acknowledgement makes no filter for an object that knew none."""
        for each in requests:
            if each.verb == "acknowledge" and each.is_alone and each.knew == frozenset():
                raise Violation("made unknown", f"{each} made a filter, and its object had known none")

    def _opens(self, owner: Owner, verb: str, requests: Sequence[Request], *, is_marked: bool) -> bool:
        """Return whether an object may go on with the stored filter after the reply to a command.

        After a loss it goes on with a marked filter only, unless it accepts what is stored.
        """
        if verb not in ("describe", "reserve"):
            return verb == "clear"
        if owner.raised is not None and not owner.may_open:
            return is_marked
        verbs = (*READING, "acknowledge", *["create"] * (owner.recreates or owner.may_open))
        is_asking = verb == "reserve" or any(each.verb in verbs for each in requests)
        return is_asking or (is_marked and owner.raised is not None)

    def _note_claims(
        self, generation: bytes | None, verb: str, requests: Sequence[Request], reply: Any
    ) -> None:
        """Record what a command has done to claims."""
        if verb == "claim":
            self._claimed(requests, generation, reply)
        elif verb == "extend":
            extended = dict(zip(owners_in(self._command), reply, strict=True))
            for request in self._about(requests):
                if extended[_owner(request)] == ord("1"):
                    request.executed = self.server.data.now
        elif verb == "commit":
            answers = [reply] if isinstance(reply, int) else [byte - ord("0") for byte in reply]
            done = dict(zip(owners_in(self._command), answers, strict=False))
            for request in (each for each in requests if done.get(_owner(each)) == 1):
                self.claims.giving_back(request.held)
                if request.committed is None:
                    self.claims.executed(request)
                    request.committed = len(self.history.log) - 1

    def _claimed(self, requests: Sequence[Request], generation: bytes | None, reply: Any) -> None:
        about = [each for each in requests if self._claim_keys[each.item] in self._command]
        in_order = sorted(
            {each.item for each in about}, key=lambda i: self._command.index(self._claim_keys[i])
        )
        states = dict(zip(in_order, bytes(reply).partition(b" ")[0], strict=False))
        for request in about:  # equal items share their claim
            if request.item not in states:  # the filter was full before it
                continue
            request.generation, claims = generation, states[request.item] == ord("c")
            is_retried = any(each.item == request.item and each.state == "running" for each in about)
            if claims and not is_retried:
                self.claims.got(request, owners_in(self._command))
            request.executed = self.server.data.now
            if claims:
                request.claimed = (*request.claimed, request.executed)

    def _about(self, requests: Sequence[Request]) -> list[Request]:
        """Return the requests of a call that a command is about, by its claim's key and owner."""
        parts = [part for part in self._command if isinstance(part, bytes)]
        return [
            each
            for each in requests
            if self._claim_keys[each.item] in parts and _owner(each) in owners_in(self._command)
        ]

    def reply(self, ref: str) -> None:
        exchange = self.network.exchanges.get(ref)
        super().reply(ref)
        if exchange is not None:
            exchange.owner.go_on(exchange.requests)

    def replied(self, exchange: Exchange) -> None:
        message = exchange.message
        told = () if message is None else zip(message.replies, exchange.commands, strict=False)
        refused = [command for reply, command in told if _is_of_another(reply, command)]
        answers = any(verb_of(command) != "read" for command in refused)  # a piece answers nobody
        if refused:
            for request in exchange.requests:
                request.met_loss = request.met_loss or (answers and len(exchange.requests) == 1)
        if (
            message is not None
            and message.is_executed
            and not (
                exchange.commands[-1][0] == "WAIT"
                and message.replies[-1]
                in range(exchange.owner.options.get("min_replicas", 0))  # the others are ignored
            )
        ):
            exchange.owner.told(exchange.requests)


def _is_marked(value: object) -> bool:
    """Return whether a stored filter is marked as acknowledged."""
    return isinstance(value, bytes) and value[FLAGS_BYTE] & ACKNOWLEDGED > 0


def _is_of_another(reply: Any, command: Sequence[Any]) -> bool:
    """Return whether a script refused the identity in its command, since no or another filter is stored."""
    word, _, found = str(reply).partition(" ")
    known = [part for part in command if isinstance(part, bytes) and part.startswith(b"bloomr")]
    if not (known and isinstance(reply, Exception)) or word not in (replies.CHANGED, replies.MISSING):
        return False
    return word == replies.MISSING or bytes.fromhex(found)[GENERATION] != known[0][GENERATION]


def _owner(request: Request) -> bytes:
    """Return the owner of a request's claim."""
    owner: bytes = state_of(request.held).owner
    return owner
