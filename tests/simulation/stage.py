"""The stage of a simulation: processes with filter objects, calls, the network, and servers.

The worlds built on it define the calls and judge the events.
"""

from __future__ import annotations

import asyncio
import hashlib
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from functools import partial
from types import SimpleNamespace
from typing import Any, Final

from bloomredis.operations.claims.requests import ClaimRequest
from bloomredis.protocol import cluster
from bloomredis.protocol.steps import Call as Asked
from bloomredis.protocol.steps import Compute, LocalStep, Part, Sleep, joined, parted
from tests.simulation.actions import Action, Scenario
from tests.simulation.database import ServerError
from tests.simulation.environment import Environment
from tests.simulation.forking import after_fork
from tests.simulation.history import state_of
from tests.simulation.loop import Client, ClusterClient, Loop
from tests.simulation.network import (
    KNOWN_SCRIPTS,
    Exchange,
    Message,
    Network,
    error_of,
    key_of,
    node_of,
    owners_in,
    verb_of,
)
from tests.simulation.processes import Call, Owner, Process, Setup, grouped
from tests.simulation.server import Server

LOCAL: Final = (
    *(Sleep, cluster.NodeToWrite, cluster.NodeToRead, cluster.NodeAt),
    *(cluster.RefreshSlot, cluster.RefreshMap),
)
"""Acts of a cluster client that need no server here."""


class Stage(ABC):
    """The state of a run.

    :ivar owners: filter objects by name.
    :ivar calls: operations in flight.
    :ivar lines: gets a line for each event, if given.
    :ivar digest: gets each command, reply and answer, if given.
    """

    stray_seconds = 100.0
    """Seconds for which a message may stay in flight."""

    def __init__(self, scenario: Scenario, environment: Environment, servers: Sequence[Server]) -> None:
        for server in servers:
            server.reset()
            if scenario.is_warm:
                server.learn(KNOWN_SCRIPTS)
        self.scenario, self.environment, self.servers = scenario, environment, servers
        self.server = servers[0]
        self.network = Network()
        self.owners: dict[str, Owner] = {}
        self.processes: dict[str, Process] = {}
        self.calls: dict[str, Call] = {}
        self.tasks: dict[Any, Call] = {}
        self.lines: list[str] | None = None
        self.digest: hashlib.blake2s | None = None
        self._last_pid = 100
        self._of_claims: dict[int, tuple[ClaimRequest, Call]] = {}  # requests about claims, by id
        self._batches: dict[Any, Sequence[ClaimRequest]] = {}  # the requests that each task sends
        environment.note, environment.note_batch = self._note, self._note_batch

    def _tasks(self) -> list[Any]:
        """Return the running task, if any, in a list."""
        loops = [process.loop for process in self.processes.values() if process.loop is not None]
        return [task for loop in loops if (task := asyncio.current_task(loop)) is not None]

    def _note(self, request: ClaimRequest) -> None:
        """Record the call for which its task makes a request, which may share a batch with others."""
        for task in self._tasks():
            if call := self.tasks.get(task):
                self._of_claims[id(request)] = request, call

    def _note_batch(self, requests: Sequence[ClaimRequest]) -> None:
        """Record the requests of a batch that its task begins to send."""
        for task in self._tasks():
            self._batches[task] = requests

    def requests_of(self, exchange: Exchange, *commands: Sequence[Any]) -> Sequence[Any]:
        """Return the requests that commands are for."""
        named = {(verb_of(command), owner) for command in commands for owner in owners_in(command)}
        calls: dict[str, Call] = {}
        for request, call in self._of_claims.values() if named else ():
            if (request.verb.replace("renew", "extend"), request.state.owner) in named:
                calls[call.ref] = call
        return [request for call in calls.values() for request in call.requests] or exchange.requests

    def clocks(self) -> tuple[float, int]:
        """Return the clients' clock in seconds and the server's in microseconds."""
        return self.environment.now, self.server.data.now

    def pass_time(self, seconds: float) -> None:
        """Advance all clocks."""
        self.environment.now += seconds
        for server in self.servers:
            server.data.now += int(seconds * 1e6)

    def jump(self, seconds: float) -> None:
        """Advance the servers' clocks; messages older than that are lost."""
        for server in self.servers:
            server.data.now += int(seconds * 1e6)
        self.network.strays.clear()

    def apply(self, action: Action) -> None:
        """Carry out an action; do nothing if its object does not exist."""
        if self.lines is not None:
            self.lines.append(str(action))
        self.pass_time(0.001)
        ACTIONS[action.name](self, *action.args)
        for process in list(self.processes.values()):
            if process.loop is not None and process.loop.next_due <= self.environment.now:
                self.enter(process)
                process.loop.run()
        self.notice(action.name)

    @property
    def until_due(self) -> float:
        """The seconds until the next timer of a process; infinity without timers."""
        due = (each.loop.next_due for each in self.processes.values() if each.loop is not None)
        return max(0.0, min(due, default=math.inf) - self.environment.now)

    def _feed(self, *happened: Any) -> None:
        if self.digest is not None:
            self.digest.update(repr(happened).encode())

    @abstractmethod
    def notice(self, why: str) -> None:
        """Read the stored data after a change that no command made."""

    # -- processes

    def begin_process(self, setup: Setup) -> None:
        """Start a process with new filter objects."""
        process = Process(setup.name, self.new_pid(), retries=setup.retries, is_cluster=setup.is_cluster)
        self.environment.walls[process.pid] = setup.walls
        self.enter(process)
        if setup.is_async:
            process.loop = Loop(self.environment.monotonic)  # type: ignore[abstract]  # the rest is not used
        for i, chosen in enumerate(setup.objects):
            options = dict(chosen)
            owner = Owner(f"{setup.name}.{'abc'[i]}", process, None, options)
            owner.filter = self.made(owner, options)
            self.adopt(owner)

    def new_pid(self) -> int:
        """Return the id of a new process."""
        self._last_pid += 1
        return self._last_pid

    @abstractmethod
    def made(self, owner: Owner, options: dict[str, Any]) -> Any:
        """Return a new filter object, or its operations."""

    def client(self, owner: Owner) -> Client:
        """Return an asyncio client of the server, or of all nodes."""
        send = partial(self._post, owner)
        if owner.process.is_cluster:
            return ClusterClient(owner.process.loop, send, self._place)
        return Client(owner.process.loop, send)

    def _place(self, key: Part) -> int:
        return node_of(key if isinstance(key, bytes) else str(key).encode(), len(self.servers))

    def adopt(self, owner: Owner) -> None:
        """Register a filter object for calls."""
        self.owners[owner.name] = owner
        owner.process.owners[owner.name] = owner
        self.processes[owner.process.name] = owner.process

    def enter(self, process: Process) -> None:
        """Make a process the running one."""
        self.environment.pid = process.pid

    def check(self, process: Process) -> None:
        """Let a process detect a fork, as each public call does at its start."""
        if process.unseen is not None:
            forked, process.unseen = process.unseen, None
            after_fork(forked)

    # -- calls

    @abstractmethod
    def start(self, ref: str, name: str, verb: str, items: Sequence[int], other: str | None) -> None:
        """Start a call on a filter object."""

    def send(self, call: Call, step: Any) -> None:
        """Send an operation's commands, to several nodes at once if their keys lie on several."""
        if isinstance(step, LocalStep):
            call.answer(self._here(step))
            return
        if call.owner.process.is_cluster:
            self._deliver(call, step)
            return
        groups = grouped(step, len(self.servers))
        is_one = isinstance(step, Asked)
        answers: list[Any] = [None] * sum(len(own) for _, own, _ in groups)
        waiting = set(range(len(groups)))

        def take(group: int, answer: Any) -> None:
            own, calls = groups[group][1:]
            each = (
                [answer] * len(own)
                if isinstance(answer, Exception) or len(own) == 1
                else parted(calls, answer)
            )
            for i, one in zip(own, each, strict=True):
                answers[i] = one
            waiting.discard(group)
            if waiting:
                return
            if is_one and isinstance(answers[0], Exception):
                call.fail(answers[0])
            else:
                call.answer(answers[0] if is_one else answers)

        for group, (place, _, calls) in enumerate(groups):
            single, then = len(calls) == 1 and calls[0].is_single, partial(take, group)
            ref = f"{call.ref}@{group}" if len(self.servers) > 1 else call.ref
            exchange = Exchange(
                *(ref, call.owner, joined(calls), call.requests),
                is_single=single,
                place=place,
                calls=calls,
            )
            exchange.answer = exchange.fail = then
            self.network.send(exchange, self.server.data.now)

    def _deliver(self, call: Call, step: Any) -> None:
        """Send an operation's commands by the cluster client's acts."""
        acts: Any = cluster.make(self, step) if isinstance(step, Asked) else cluster.run(self, step.calls)
        sent: list[Exchange] = []

        def go_on(on: Callable[[], Any]) -> None:
            try:
                act = on()
                while isinstance(act, LOCAL):
                    act = acts.send(self._look_up(act))
            except StopIteration as end:
                call.answer(end.value)
            except Exception as error:
                call.fail(error)
            else:
                sent.extend(self._send_to_nodes(call, act, partial(go_on_after, act), sent))

        def go_on_after(act: Any, answers: list[Any]) -> None:
            if isinstance(act, cluster.SendAll):
                go_on(partial(acts.send, answers))
            else:
                go_on(partial(acts.throw if isinstance(answers[0], Exception) else acts.send, answers[0]))

        go_on(partial(next, acts))

    def _look_up(self, act: Any) -> Any:
        """Perform an act that needs no server; the map of slots never changes."""
        if isinstance(act, Sleep):
            self.pass_time(act.seconds)
        return (
            SimpleNamespace(name=str(self._place(act.key))) if isinstance(act, cluster.NodeToWrite) else None
        )

    def _send_to_nodes(
        self, call: Call, act: Any, go_on: Callable[[list[Any]], None], earlier: Sequence[Exchange]
    ) -> list[Exchange]:
        """Send commands to one node, or to several at once; then go on with the answers.

        :param earlier: the exchanges of the same step, which may have executed the same commands.
        """
        sends = act.sends if isinstance(act, cluster.SendAll) else [act]
        answers: list[Any] = [None] * len(sends)
        waiting = set(range(len(sends)))

        def take(i: int, answer: Any) -> None:
            answers[i] = answer
            waiting.discard(i)
            if not waiting:
                go_on(answers)

        exchanges = []
        for i, send in enumerate(sends):
            exchange = Exchange(
                *(f"{call.ref}@{i}", call.owner, send.commands, call.requests),
                is_single=False,
                place=int(send.node.name),
            )
            exchange.executions = sum(each.executions for each in earlier)
            exchange.answer = exchange.fail = partial(take, i)
            exchanges.append(exchange)
        for exchange in exchanges:
            self.network.send(exchange, self.server.data.now)
        return exchanges

    def _here(self, step: LocalStep) -> Any:
        if isinstance(step, Sleep):
            return self.pass_time(step.seconds)
        if isinstance(step, Compute):
            return step.function()
        batch = next(step.source, None)
        if batch and step.take is not None:
            step.take(batch)
        return batch

    def _post(self, owner: Owner, commands: list[Any], future: Any, single: bool) -> None:  # noqa: FBT001 - as a client is given it
        """Send an asyncio client's commands; those of a pipeline go to the node of each."""
        nodes = [node_of(key_of(command), len(self.servers)) for command in commands]
        groups = {node: [i for i, each in enumerate(nodes) if each == node] for node in dict.fromkeys(nodes)}
        replies: list[Any] = [None] * len(commands)
        waiting = set(groups)

        def take(node: int, answer: Any) -> None:
            for i, reply in zip(groups[node], [answer] if single else answer, strict=True):
                replies[i] = reply
            waiting.discard(node)
            if not waiting and not future.done():
                future.set_result(replies[0] if single else replies)

        def fail(error: BaseException) -> None:
            if not future.done():
                future.set_exception(error)

        for node, own in groups.items():
            sent = [commands[i] for i in own]
            exchange = self._post_to(owner, node, sent, single=single)
            exchange.answer, exchange.fail, exchange.is_part = partial(take, node), fail, len(groups) > 1
            future.add_done_callback(partial(self._abandon, exchange))

    def _abandon(self, exchange: Exchange, done: Any) -> None:
        if done.cancelled():
            self.network.abandon(exchange)

    def _post_to(self, owner: Owner, place: int, commands: list[Any], *, single: bool) -> Exchange:
        """Send commands to a node."""
        free = next(i for i in range(100) if f"{owner.name}/{i}" not in self.network.exchanges)
        task = asyncio.current_task(owner.process.loop)
        call, asked = self.tasks.get(task), self._batches.get(task, ())
        shared = () if any(map(owners_in, commands)) else self.waiting(owner)  # a renewal answers no call
        if asked:
            shared = [each for one in asked for each in self._of_claims[id(one)][1].requests]
        requests = shared if call is None else call.requests
        exchange = Exchange(f"{owner.name}/{free}", owner, commands, requests, is_single=single, place=place)
        exchange.requests = self.requests_of(exchange, *commands)
        self.network.send(exchange, self.server.data.now)
        return exchange

    def waiting(self, owner: Owner) -> Sequence[Any]:
        """Return the requests that a shared batch may be for."""
        return ()

    def ended(self, call: Call, answer: Any, error: BaseException | None) -> None:
        """Take the answer to a caller."""
        self.calls.pop(call.ref, None)
        self.tasks.pop(call.task, None)
        answers = answer if isinstance(answer, list) else [answer]
        self._feed(
            call.ref, [getattr(state_of(each), "status", each) for each in answers], type(error).__name__
        )
        if self.lines is not None:
            self.lines.append(f"    {call.ref} {answer!r}" if error is None else f"    {call.ref} {error!r}")
        self.settle(call, answer, error)

    @abstractmethod
    def settle(self, call: Call, answer: Any, error: BaseException | None) -> None:
        """Record a call's outcome."""

    @abstractmethod
    def voided(self, call: Call) -> None:
        """Record that a call has vanished with its process."""

    def go_on(self, owner: Owner, on: Callable[[], object]) -> None:
        """Let a process react to an event."""
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
        try:
            reply = self.servers[exchange.place].execute(command)
        except ServerError as error:
            reply = error_of(str(error))
        message.replies.append(reply)
        self._feed(exchange.ref, command, reply)
        exchange.executions += not isinstance(reply, Exception)
        if self.lines is not None:
            self.lines.append(f"    {message.name} {verb} -> {reply!r}")
        self.executed(exchange, verb, reply)

    @abstractmethod
    def executed(self, exchange: Exchange, verb: str, reply: Any) -> None:
        """Record that a command was executed."""

    def reply(self, ref: str) -> None:
        """Give a client the reply that it waits for."""
        exchange = self.network.exchanges.get(ref)
        if exchange is not None:
            self.replied(exchange)
            self.go_on(exchange.owner, lambda: self.network.answer(exchange))

    @abstractmethod
    def replied(self, exchange: Exchange) -> None:
        """Record that a client got a reply."""

    def wait(self, seconds: float) -> None:
        """Advance the time; messages that are too old are lost."""
        self.pass_time(seconds)
        self.drop_old()

    def drop_old(self) -> None:
        """Lose the messages that are too old."""
        oldest = self.server.data.now - self.stray_seconds * 1e6
        for name, message in list(self.network.strays.items()):
            if message.clock < oldest:
                del self.network.strays[name]


ACTIONS: Final[dict[str, Callable[..., None]]] = {
    "start": lambda world, *args: world.start(*args),
    "execute": Stage.execute,
    "reply": lambda world, *args: world.reply(*args),
    "wait": Stage.wait,
}
"""The possible actions by name; `faults` adds to it."""
