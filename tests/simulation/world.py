"""One simulated world: processes with filter objects, the network, the server, and what they did.

A schedule is a list of actions.  Each names what it is about, so that it means the same, or nothing, where
actions before it are left out.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from tests.simulation import outcomes
from tests.simulation.calls import begin
from tests.simulation.claim_rules import ClaimRules
from tests.simulation.database import ServerError, Snapshot
from tests.simulation.environment import Environment
from tests.simulation.history import History, Request, Stored
from tests.simulation.kinds import ITEMS, KEY, KINDS, Kind
from tests.simulation.loop import Client, Loop
from tests.simulation.network import KNOWN_SCRIPTS, Exchange, Message, Network, error_of, verb_of
from tests.simulation.processes import Call, Owner, Process, Setup, unpacked
from tests.simulation.rules import Rules
from tests.simulation.server import Server

STRAY_SECONDS: Final = 100.0
"""How long a message may be on its way."""

OLDER_STATES: Final = 8
"""Writes that a rollback may lose."""


class Action(NamedTuple):
    """Something that happens in a world."""

    name: str
    args: tuple[Any, ...] = ()

    def __str__(self) -> str:
        return f"{self.name}({', '.join(map(str, self.args))})"


@dataclass(frozen=True)
class Scenario:
    """What a run begins with.

    :ivar faults: those that may happen.
    :ivar calls: those that are made.
    :ivar is_warm: whether the server knows the scripts.
    """

    kind: str
    options: tuple[tuple[str, Any], ...]
    processes: tuple[Setup, ...]
    faults: frozenset[str]
    calls: frozenset[str]
    is_warm: bool = False


class World:
    """The state of a run.

    :ivar owners: filter objects by name.
    :ivar calls: operations under way.
    :ivar lines: what happens, where it is wanted.
    :ivar requests: all that were made, by their names; those `held` have a claim.
    """

    def __init__(self, scenario: Scenario, environment: Environment, server: Server) -> None:
        server.reset()
        self.scenario, self.environment, self.server = scenario, environment, server
        self.kind: Kind = KINDS[scenario.kind]
        self.network = Network()
        self.history = History(ITEMS, environment.now)
        self.rules = Rules(self.history, self.clocks, counts=self.kind.counts)
        self.claims = ClaimRules(self.history, lambda: server.data.now)
        self.observe = self.kind.observer()
        self.owners: dict[str, Owner] = {}
        self.processes: dict[str, Process] = {}
        self.calls: dict[str, Call] = {}
        self.requests: dict[str, Request] = {}
        self._last_pid = 100
        self.tasks: dict[Any, Call] = {}
        self.lines: list[str] | None = None
        self.held: list[Request] = []
        self.older: deque[tuple[Snapshot, Stored]] = deque(maxlen=OLDER_STATES)
        if scenario.is_warm:
            server.learn(KNOWN_SCRIPTS)
        for setup in scenario.processes:
            self.begin_process(setup)

    def clocks(self) -> tuple[float, int]:
        """Return the clients' clock in seconds and the server's in microseconds."""
        return self.environment.now, self.server.data.now

    def pass_time(self, seconds: float) -> None:
        """Let time go on everywhere."""
        self.environment.now += seconds
        self.server.data.now += int(seconds * 1e6)

    def apply(self, action: Action) -> None:
        """Let an action happen; nothing does if what it is about is not there."""
        self.history.step += 1
        if self.lines is not None:
            self.lines.append(str(action))
        self.pass_time(0.001)
        ACTIONS[action.name](self, *action.args)
        self.notice()

    def notice(self) -> None:
        """Let history know what is stored, where something else than a command changed it."""
        self.history.observe(self.environment.now, *self.observe(self.server.data), "", ())

    # -- processes

    def begin_process(self, setup: Setup) -> None:
        """Start a process with new filter objects."""
        process = Process(setup.name, self.new_pid(), retries=setup.retries)
        self.enter(process)
        if setup.is_async:
            process.loop = Loop(self.environment.monotonic)  # type: ignore[abstract]  # the rest is not used
        for i, chosen in enumerate(setup.objects):
            options = dict(chosen)
            given = self.kind.options | dict(self.scenario.options) | options
            owner = Owner(f"{setup.name}.{'abc'[i]}", process, None, options)
            owner.filter = self._made(owner, given)
            self.adopt(owner)

    def new_pid(self) -> int:
        """Return the id of a new process."""
        self._last_pid += 1
        return self._last_pid

    def _made(self, owner: Owner, options: dict[str, Any]) -> Any:
        loop = owner.process.loop
        if loop is None:
            return self.kind.operations(KEY, **options)
        client = Client(
            loop, lambda commands, future, single: self._post(owner, commands, future, single=single)
        )
        return self.kind.asynchronous(client, KEY, **options)

    def adopt(self, owner: Owner) -> None:
        """Let a filter object be called."""
        self.owners[owner.name] = owner
        owner.process.owners[owner.name] = owner
        self.processes[owner.process.name] = owner.process

    def enter(self, process: Process) -> None:
        """Let the code of a process run next."""
        self.environment.pid = process.pid

    # -- calls

    def start(self, ref: str, name: str, verb: str, items: Sequence[int], other: str | None) -> None:
        """Let a filter object be called."""
        owner = self.owners.get(name)
        if owner is not None and ref not in self.calls:
            begin(self, Call(ref, owner, (), self.ended), verb, items, other)

    def send(self, call: Call, step: Any) -> None:
        """Send what an operation asks for."""
        commands, single, answer = unpacked(step)
        exchange = Exchange(call.ref, call.owner, commands, call.requests, is_single=single)
        exchange.answer, exchange.fail = (lambda reply: call.answer(answer(reply))), call.fail
        self.network.send(exchange, self.server.data.now)

    def _post(self, owner: Owner, commands: list[Any], future: Any, *, single: bool) -> None:
        """Send what an asyncio client is given."""
        free = next(i for i in range(100) if f"{owner.name}/{i}" not in self.network.exchanges)
        call = self.tasks.get(asyncio.current_task(owner.process.loop))
        requests = self._waiting(owner) if call is None else call.requests
        exchange = Exchange(f"{owner.name}/{free}", owner, commands, requests, is_single=single)
        exchange.answer, exchange.fail = future.set_result, future.set_exception
        future.add_done_callback(lambda done: self.network.abandon(exchange) if done.cancelled() else None)
        self.network.send(exchange, self.server.data.now)

    def _waiting(self, owner: Owner) -> list[Request]:
        """Return those that a shared batch may be for: the running ones, and those cancelled meanwhile."""
        left = [each for each in self.history.unknown if each.owner is owner and each.token is None]
        return [each for each in (*owner.running, *left) if each.verb in ("add", "contains")]

    def ended(self, call: Call, answer: Any, error: BaseException | None) -> None:
        """Take what a caller was answered."""
        self.calls.pop(call.ref, None)
        self.tasks.pop(call.task, None)
        if self.lines is not None:
            self.lines.append(f"    {call.ref} {answer!r}" if error is None else f"    {call.ref} {error!r}")
        outcomes.settle(self, call, answer, error)

    def go_on(self, owner: Owner, on: Callable[[], object]) -> None:
        """Let a process go on after something has happened to it."""
        self.enter(owner.process)
        on()
        if owner.process.loop is not None:
            owner.process.loop.run()

    # -- messages

    def execute(self, ref: str) -> None:
        """Let the server execute the next command of a message."""
        exchange = self.network.exchanges.get(ref)
        if exchange is not None and exchange.message is not None and not exchange.message.is_executed:
            self.run(exchange.message)

    def run(self, message: Message) -> None:
        """Execute the next command of a message."""
        exchange = message.exchange
        command = exchange.commands[len(message.replies)]
        verb = verb_of(command)
        if "rollback" in self.scenario.faults:
            self.older.append((self.server.data.snapshot(), self.history.stored))
        try:
            reply = self.server.execute(command)
        except ServerError as error:
            reply = error_of(str(error))
        message.replies.append(reply)
        exchange.was_executed |= not isinstance(reply, Exception)
        if self.lines is not None:
            self.lines.append(f"    {message.name} {verb} -> {reply!r}")
        generation, counts = self.observe(self.server.data)
        self.history.observe(self.environment.now, generation, counts, verb, exchange.requests)
        self._note(exchange, verb, generation, reply)

    def _note(self, exchange: Exchange, verb: str, generation: bytes | None, reply: Any) -> None:
        if isinstance(reply, Exception):
            return
        if verb in ("reserve", "clear"):
            exchange.owner.opened(generation, len(self.history.log) - 1, exchange.requests)
        elif verb == "claim":
            for request in exchange.requests:
                request.executed, request.generation = self.server.data.now, generation
        elif verb == "commit" and reply == 1:
            for request in exchange.requests:
                self.claims.giving_back(request.held)
                if request.committed is None:
                    request.committed = len(self.history.log) - 1

    def reply(self, ref: str) -> None:
        """Hand a client the reply that it waits for."""
        exchange = self.network.exchanges.get(ref)
        if exchange is not None:
            if exchange.message is not None and exchange.message.is_executed:
                for request in exchange.requests:
                    request.told = request.opened
            self.go_on(exchange.owner, lambda: self.network.answer(exchange))

    def wait(self, seconds: float) -> None:
        """Let time go on; a message that is too old is lost."""
        self.pass_time(seconds)
        oldest = self.server.data.now - STRAY_SECONDS * 1e6
        for name, message in list(self.network.strays.items()):
            if message.clock < oldest:
                del self.network.strays[name]


ACTIONS: Final[dict[str, Callable[..., None]]] = {
    "start": World.start,
    "execute": World.execute,
    "reply": World.reply,
    "wait": World.wait,
}
"""What may happen, by name; `faults` adds to it."""
