"""Faults: how each is drawn, and its effect.

Each has a name and a function that proposes the arguments of an action, or None if it makes no sense now.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any, Final

import redis

from tests.simulation.actions import Action
from tests.simulation.database import what_is
from tests.simulation.forking import Forked, inherit
from tests.simulation.history import Violation
from tests.simulation.network import Exchange, error_of
from tests.simulation.outcomes import is_refused
from tests.simulation.processes import Owner, Process, SoftTimeLimit
from tests.simulation.server import COMMANDS, REFUSES, Server
from tests.simulation.stage import ACTIONS, Stage
from tests.simulation.world import World

WORDS: Final = (
    *("READONLY", "NOREPLICAS", "MISCONF", "NOPERM", "OOM"),
    *("BUSY", "LOADING", "NOAUTH", "MASTERDOWN", "ERR"),
)
"""First words of refusals; the library does not know the last one."""
_ERRORS: Final = {"connection": redis.exceptions.ConnectionError, "timeout": redis.exceptions.TimeoutError}


# -- connections


def lose(world: Stage, ref: str, how: str, late: bool) -> None:  # noqa: FBT001 - an argument of an action
    """Break a client's connection, before or after its message was executed."""
    exchange = world.network.exchanges.get(ref)
    if exchange is not None:
        clock = world.server.data.now
        error = _ERRORS[how]("Connection lost")
        world.go_on(exchange.owner, lambda: world.network.break_connection(exchange, error, clock, late=late))


def refuse(world: Stage, ref: str, word: str) -> None:
    """Let the server refuse a message.

    The refusal does not exclude the answer of an earlier attempt, and proves nothing about one still in
    flight.
    """
    exchange = world.network.exchanges.get(ref)
    if exchange is not None and exchange.message is not None:
        message = exchange.message
        rest = len(exchange.commands) - len(message.replies)
        message.replies += [error_of(f"{word} {REFUSES}")] * rest


def refuse_inside(world: Stage, ref: str, denied: Sequence[str], longest: int) -> None:
    """Execute a message while the server denies commands or refuses long strings, which changes no data."""
    exchange = world.network.exchanges.get(ref)
    if exchange is None or exchange.message is None or exchange.message.is_executed:
        return
    message = exchange.message
    server, replies = world.servers[exchange.place], len(message.replies)
    usual, before = (server.denied, server.longest), _data(server)
    server.denied, server.longest = frozenset(denied), longest
    try:
        world.execute(ref)
    finally:
        server.denied, server.longest = usual
    if any(is_refused(reply) for reply in message.replies[replies:]) and _data(server) != before:
        changed = [key for key in {**before, **_data(server)} if before.get(key) != _data(server).get(key)]
        raise Violation("changed though refused", f"{message.name} was refused, and has changed {changed}")


def _data(server: Server) -> dict[bytes, tuple[Any, bool]]:
    """Return each value and whether it expires, without receipts, which may say that a call was begun."""
    return {
        key: (server.data.values[key], key in server.data.deadlines)
        for key in server.data.alive()
        if what_is(key) != "receipt"
    }


def exhaust(world: Stage, ref: str) -> None:
    """Let the client's pool have no free connection, so that a message was never sent."""
    exchange = world.network.exchanges.get(ref)
    was_sent = exchange is not None and (exchange.executions or world.network.has_strays(exchange))
    if exchange is not None and _unsent(exchange) and not was_sent:
        del world.network.exchanges[ref]
        error = redis.exceptions.MaxConnectionsError("Too many connections")
        world.go_on(exchange.owner, lambda: exchange.fail(error))


def copy(world: Stage, ref: str) -> None:
    """Leave an earlier attempt to send a message in the network."""
    exchange = world.network.exchanges.get(ref)
    if exchange is not None:
        world.network.copy(exchange)


def stray(world: Stage, name: str) -> None:
    """Execute a message that nobody waits for."""
    message = world.network.strays.pop(name, None)
    while message is not None and not message.is_executed:
        world.run(message)


# -- the server


def flush_scripts(world: Stage) -> None:
    """Make the server drop its scripts."""
    for server in world.servers:
        server.flush_scripts()


def flush_all(world: Stage) -> None:
    """Make the server drop everything."""
    for server in world.servers:
        server.data.flushall()


def evict(world: World, what: str, place: int) -> None:
    """Evict a key from the server: the filter, a receipt or a claim."""
    keys = [key for key in world.server.data.alive() if what_is(key) == what]
    if keys:
        key = keys[place % len(keys)]
        world.server.data.remove(key)
        world.history.evicted[key] = world.history.step


def rollback(world: World, writes: int) -> None:
    """Make the server lose its last writes."""
    if len(world.older) < writes:
        return
    for _ in range(writes):
        data, stored = world.older.pop()
    world.server.data.restore(data)
    world.history.restore(world.environment.now, stored)
    world.history.rolled_back = world.history.step


def jump(world: World, seconds: float) -> None:
    """Advance the server's clock."""
    world.jump(seconds)
    world.history.jumped = world.history.step


def replicas(world: Stage, number: int) -> None:
    """Let that many replicas confirm writes from now on."""
    world.server.replicas = number


# -- clients


def cancel(world: Stage, ref: str) -> None:
    """Let a caller leave without waiting for its answer."""
    call = world.calls.get(ref)
    if call is None:
        return
    if call.task is not None:
        world.go_on(call.owner, call.task.cancel)
    elif exchanges := world.network.of(ref):
        for exchange in exchanges:
            world.network.abandon(exchange)
        world.enter(call.owner.process)
        call.close()
        world.ended(call, None, GeneratorExit())


def cancel_task(world: Stage, name: str, turns: int | None) -> None:
    """Cancel a task that the library has made in a process, or will make next, as `Loop.cancel_own` does."""
    process = world.processes.get(name)
    if process is not None and process.loop is not None:
        world.enter(process)
        process.loop.cancel_own(turns)
        process.loop.run()


def interrupt(world: Stage, ref: str) -> None:
    """Raise an unknown exception where a thread waits for its reply."""
    call = world.calls.get(ref)
    exchanges = world.network.of(ref)
    if call is not None and exchanges and call.task is None:
        for exchange in exchanges:
            world.network.abandon(exchange)
        world.go_on(call.owner, lambda: call.fail(SoftTimeLimit("time is over")))


def interrupt_inside(world: Stage, name: str, number: int) -> None:
    """Let a signal interrupt the next call of a process at the n-th point within the library."""
    process = world.processes.get(name)
    if process is not None:
        process.interrupt_at = number


def kill(world: Stage, name: str) -> None:
    """Kill a process, and restart it with new filter objects."""
    setup = next((each for each in world.scenario.processes if each.name == name), None)
    process = world.processes.get(name)
    if setup is None or process is None:
        return
    for call in [each for each in world.calls.values() if each.owner.process is process]:
        del world.calls[call.ref]
        call.operation = None
        world.voided(call)
    for exchange in [each for each in world.network.exchanges.values() if each.owner.process is process]:
        world.network.abandon(exchange)
    if process.loop is not None:
        process.loop.stop()
    world.begin_process(setup)


def fork(world: Stage, name: str, child_name: str, in_c: bool) -> None:  # noqa: FBT001 - an argument of an action
    """Fork a process: the child has copies of its filter objects, and none of its threads.

    :param in_c: by a program that calls none of Python's hooks.
    """
    process = world.processes.get(name)
    if process is None or process.loop is not None or child_name in world.processes:
        return
    forked = _copied(world, process, child_name, world.new_pid())
    world.processes[child_name].unseen = forked
    if not in_c:
        world.check(world.processes[child_name])


def clone(world: World, name: str, other_name: str) -> None:
    """Copy the machine of an idle process: two processes then have its id, and no hook runs.

    No call is in flight or pending, since both machines would have its token or its claim.
    """
    process = world.processes.get(name)
    if process is None or process.loop is not None or process.unseen or other_name in world.processes:
        return
    unsettled = (
        *(call.owner for call in world.calls.values()),
        *(each.owner for each in world.history.unknown),
        *(each.owner for each in world.history.left if each.verb == "claim"),
    )
    if not any(owner.process is process for owner in unsettled):
        _copied(world, process, other_name, process.pid)


def _copied(world: Stage, process: Process, name: str, pid: int) -> Forked:
    """Start a process with copies of another's filter objects."""
    made = Process(name, pid, retries=process.retries, is_cluster=process.is_cluster)
    world.environment.walls[pid] = world.environment.walls[process.pid]
    world.enter(made)
    forked = Forked()
    for i, owner in enumerate(process.owners.values()):
        own = Owner(f"{name}.{'abc'[i]}", made, forked(owner.filter), owner.options)
        own.generations, own.is_fresh = dict(owner.generations), owner.may_open
        own.acknowledged = owner.acknowledged
        own.raised, own.is_copy = owner.raised, True
        world.adopt(own)
    inherit(forked)
    return forked


# -- drawing of faults

Draw = Callable[[Stage, random.Random], Action | None]


def _exchange(world: Stage, rng: random.Random, fits: Callable[[Exchange], bool] = bool) -> str | None:
    refs = [ref for ref, each in world.network.exchanges.items() if fits(each)]
    return rng.choice(refs) if refs else None


def _unexecuted(exchange: Exchange) -> bool:
    return exchange.message is not None and not exchange.message.replies


def _first(exchange: Exchange) -> bool:
    return exchange.sendings == 1 and _unexecuted(exchange)


def _unsent(exchange: Exchange) -> bool:
    """Return whether the client may find no connection for a message: the parts of a pipeline share one."""
    return _first(exchange) and not exchange.is_part


def _executed(exchange: Exchange) -> bool:
    return exchange.message is not None and exchange.message.is_executed


def _on_exchange(name: str, fits: Callable[[Exchange], bool], *args: Sequence[Any]) -> Draw:
    def draw(world: Stage, rng: random.Random) -> Action | None:
        ref = _exchange(world, rng, fits)
        return None if ref is None else Action(name, (ref, *(rng.choice(each) for each in args)))

    return draw


def _of(name: str, *args: Sequence[Any]) -> Draw:
    return lambda _, rng: Action(name, tuple(rng.choice(each) for each in args))


def _on_call(name: str) -> Draw:
    def draw(world: Stage, rng: random.Random) -> Action | None:
        return Action(name, (rng.choice(list(world.calls)),)) if world.calls else None

    return draw


def late(world: Stage, rng: random.Random) -> Action | None:
    """Return the execution of a message that nobody waits for, if one exists."""
    strays = list(world.network.strays)
    return Action("stray", (rng.choice(strays),)) if strays else None


def _cancel_task(world: Stage, rng: random.Random) -> Action | None:
    names = [name for name, each in world.processes.items() if each.loop is not None]
    return Action("cancel_task", (rng.choice(names), rng.choice((None, 0, 0, 1, 2, 4)))) if names else None


def _interrupt_inside(world: Stage, rng: random.Random) -> Action | None:
    names = [name for name, each in world.processes.items() if each.loop is None]
    return Action("interrupt_inside", (rng.choice(names), int(3 ** rng.uniform(0, 5.5)))) if names else None


def _kill(world: Stage, rng: random.Random) -> Action | None:
    return Action("kill", (rng.choice(world.scenario.processes).name,))


def _copy(action: str, *args: Sequence[Any]) -> Draw:
    def draw(world: Stage, rng: random.Random) -> Action | None:
        names = [name for name, each in world.processes.items() if each.loop is None]
        if not names or len(world.processes) > 4:
            return None
        name = rng.choice(names)
        return Action(action, (name, f"{name}-{len(world.processes)}", *(rng.choice(each) for each in args)))

    return draw


def _refuse_inside(world: Stage, rng: random.Random) -> Action | None:
    """Choose a right, or a length that the strings of some filters exceed."""
    ref = _exchange(world, rng, lambda each: each.message is not None and not each.message.is_executed)
    if ref is None:
        return None
    if rng.random() < 0.5:
        return Action("refuse_inside", (ref, (), rng.choice((150, 300, 500))))
    return Action("refuse_inside", (ref, (rng.choice(COMMANDS),), 1 << 29))


HOW: Final = tuple(_ERRORS)
FAULTS: Final[dict[str, tuple[float, Draw]]] = {
    "lost_reply": (3.0, _on_exchange("lose", _executed, HOW, (False,))),
    "lost_request": (1.5, _on_exchange("lose", _unexecuted, HOW, (False,))),
    "late_copy": (1.5, _on_exchange("lose", _unexecuted, HOW, (True,))),
    "double_copy": (1.0, _on_exchange("copy", lambda _: True)),
    "refusal": (1.5, _on_exchange("refuse", _unexecuted, WORDS)),
    "no_connection": (1.0, _on_exchange("exhaust", _unsent)),
    "script_flush": (0.5, _of("flush_scripts")),
    "flush_all": (0.2, _of("flush_all")),
    "evict_filter": (0.3, _of("evict", ("filter",), range(1))),
    "evict_receipt": (0.3, _of("evict", ("receipt",), range(8))),
    "evict_claim": (0.2, _of("evict", ("claim",), range(8))),
    "rollback": (0.3, _of("rollback", range(1, 8))),
    "jump": (0.1, _of("jump", (3.0, 130.0, 4 * 3600.0))),
    "slow": (0.6, _of("wait", (0.6, 1.5, 5.0, 15.0, 45.0, 130.0, 700.0))),
    "refused_inside": (1.5, _refuse_inside),
    "replicas": (0.3, _of("replicas", (0, 1, 2))),
    "cancel": (0.8, _on_call("cancel")),
    "cancel_task": (0.8, _cancel_task),
    "interrupt": (0.4, _on_call("interrupt")),
    "interrupt_inside": (4.0, _interrupt_inside),
    "kill": (0.2, _kill),
    "fork": (0.3, _copy("fork", (False, True))),
    "clone": (0.3, _copy("clone")),
}
"""The faults by name, each with its relative frequency."""

ACTIONS.update(
    {
        each.__name__: each
        for each in (
            *(
                lose,
                refuse,
                exhaust,
                refuse_inside,
                copy,
                stray,
                flush_scripts,
                flush_all,
                evict,
                rollback,
                jump,
                replicas,
            ),
            *(cancel, cancel_task, interrupt, interrupt_inside, kill, fork, clone),
        )
    }
)
