"""What a cluster's redirections mean, and what to do next: written once for both drivers, without I/O.

A cluster client can follow redirections by itself, but not as it is needed here: WAIT has to go over the
connection that wrote, ASKING over the one that asks, a call with several keys is refused for as long as
its slot migrates (TRYAGAIN), and what is sent again must be known not to have been executed.  So a call
is sent straight to the node that owns its key, and what that node says is dealt with here.  Only the map
of the cluster is left to the client.

The operations yield the acts below, which the drivers perform, and otherwise are like all others.
"""

from __future__ import annotations

import time
from collections.abc import Generator, Iterator, Sequence
from contextlib import suppress
from functools import cache
from typing import Any, Final, NamedTuple, TypeVar
from weakref import WeakSet

from bloomredis.protocol.replies import is_no_reply, word_of
from bloomredis.protocol.steps import AtMostOnce, Command, Pipelined, ReadOnly, commands_of, regrouped

T = TypeVar("T")

PATIENCE: Final = 30.0
"""Seconds for which a call is sent again while its slot migrates.

Moving a slot takes milliseconds, or seconds where a filter is large; and a call must not be sent again
after more than the two minutes for which the server keeps its receipt.
"""

RESENDS: Final = 3
"""How often a call is sent again that was not answered, half as often if the client does not find the owner.

The client's own retries are spent in between.
"""

_unable: Final[WeakSet[Any]] = WeakSet()  # clients whose servers have no EVALSHA_RO, or forbid it
_NOT_HERE: Final = frozenset(("MOVED", "CLUSTERDOWN", "READONLY"))
_NOT_NOW: Final = frozenset(("ASK", "TRYAGAIN"))  # ASK if the client does not know the node that it names
_ADDRESS: Final = {"EVAL": 3, "EVALSHA": 3}  # where a command has its first key, if not behind its name


class Owner(NamedTuple):
    """Look up the node that owns a key, in the client's map."""

    key: Any


class Reader(NamedTuple):
    """Look up the node that the client would read a key from; None if it reads from primaries only."""

    key: Any


class Address(NamedTuple):
    """Look up the node at an address; None if the client does not know it."""

    host: str
    port: int


class Send(NamedTuple):
    """Send commands to a node, over one connection, in one round trip; errors may stand among the replies."""

    node: Any
    commands: list[Command]


class SendAll(NamedTuple):
    """Send to several nodes at once; answered with what each `Send` is, or its error."""

    sends: list[Send]


class RefreshSlot(NamedTuple):
    """Let the client find the owner of a key anew, unless it knows another one than `node` already."""

    key: Any
    node: Any


class RefreshMap(NamedTuple):
    """Let the client read the map of the cluster anew."""


class Sleep(NamedTuple):
    """Wait."""

    seconds: float


Act = Owner | Reader | Address | Send | SendAll | RefreshSlot | RefreshMap | Sleep

Acts = Generator[Act, Any, T]
"""An operation of acts that ends with a T."""


@cache
def is_cluster(kind: type) -> bool:
    """Return whether a class is that of a cluster client."""
    return hasattr(kind, "get_node_from_key")


def look_up(client: Any, act: Owner | Reader | Address) -> Any:
    """Return a node as a client's map has it."""
    if isinstance(act, Owner):
        return client.get_node_from_key(act.key)
    if isinstance(act, Address):
        return client.get_node(host=act.host, port=act.port)
    strategy = getattr(client, "load_balancing_strategy", None)
    if not strategy and not getattr(client, "read_from_replicas", False):
        return None
    options = {"load_balancing_strategy": strategy} if strategy else {}
    slot = client.keyslot(act.key)
    return client.nodes_manager.get_node_from_slot(slot, read_from_replicas=True, **options)


def probe(client: Any, act: RefreshSlot) -> Command | None:
    """Return the command by which a client learns the owner of a key, None if it has learnt it meanwhile.

    It goes through the client itself, which follows redirections and reads the map again as it sees fit.
    It changes nothing, but is a write, so that no replica answers it.
    """
    with suppress(Exception):
        if client.get_node_from_key(act.key) is not act.node:
            return None
    return ("SETRANGE", act.key, 0, b"")


def run(client: Any, step: Any) -> Acts[Any]:
    """Do what a step says, on a cluster."""
    if isinstance(step, Pipelined):
        return _several(client, step.steps)
    if isinstance(step, ReadOnly):
        return _read(client, step)
    if isinstance(step, AtMostOnce):
        return _send(step.step, again=False)
    return _send(step, again=True)


def _several(client: Any, steps: Sequence[Any]) -> Acts[list[Any]]:
    """Do what several steps say: those for one node travel together, and all nodes are asked at once.

    What a node did not execute, or perhaps not, is done again as if it had come alone.
    """
    nodes: dict[str, Any] = {}
    groups: dict[str, list[int]] = {}
    alone: list[int] = []
    for i, step in enumerate(steps):
        node = yield from _placed(client, step)
        if node is None:
            alone.append(i)
        else:
            nodes[node.name] = node
            groups.setdefault(node.name, []).append(i)
    told = yield SendAll(
        [
            Send(nodes[name], [each for i in places for each in commands_of(steps[i])])
            for name, places in groups.items()
        ]
    )
    answers: list[Any] = [None] * len(steps)
    for places, replies in zip(groups.values(), told, strict=True):
        own = [steps[i] for i in places]
        each = [replies] * len(own) if isinstance(replies, Exception) else regrouped(own, replies)
        for i, answer in zip(places, each, strict=True):
            answers[i] = answer
            first = answer[0] if isinstance(answer, list) else answer
            if isinstance(first, Exception) and _may_go_again(steps[i], first):
                alone.append(i)
    for i in alone:
        try:
            answers[i] = yield from run(client, steps[i])
        except Exception as error:
            answers[i] = error
    return answers


def _placed(client: Any, step: Any) -> Acts[Any]:
    """Return the node of a step, None for one that has to go alone."""
    commands = commands_of(step)
    if len(commands) > 1 and commands[-1][0] != "WAIT":
        return None  # each command may have its own node
    try:
        if (
            isinstance(step, ReadOnly)
            and client not in _unable
            and (yield Reader(_key(commands[0]))) is not None
        ):
            return None
        return (yield Owner(_key(commands[0])))
    except Exception:
        return None


def _may_go_again(step: Any, error: Exception) -> bool:
    """Return whether a step that met an error is to be done again: surely not executed, or safe to repeat."""
    word = word_of(error)
    return word in _NOT_HERE or word in _NOT_NOW or (is_no_reply(error) and not isinstance(step, AtMostOnce))


def _send(step: Command | list[Command], *, again: bool) -> Acts[Any]:
    if not isinstance(step, list):
        return (yield from _deliver([step], again=again))[0]
    if step[-1][0] == "WAIT":
        return (yield from _deliver(step, again=again))
    replies: list[Any] = []
    for command in step:
        try:
            replies += yield from _deliver([command], again=again)
        except Exception as error:
            replies.append(error)
    return replies


def _read(client: Any, step: ReadOnly) -> Acts[Any]:
    """Run a script that only reads where the client reads from.

    A replica may be behind, and does not know which keys have left for another node: so only answers are
    taken from it, and every refusal is left to the primary.
    """
    (_, sha, *tail), text = step
    node = None
    try:
        node = None if client in _unable else (yield Reader(tail[1]))
        if node is not None:
            try:
                return (yield from _sent(node, [("EVALSHA_RO", sha, *tail)]))[0]
            except Exception as error:
                if word_of(error) != "NOSCRIPT":
                    raise
            return (yield from _sent(node, [("EVAL_RO", text, *tail)]))[0]
    except Exception as error:
        if "unknown command" in str(error).lower() or word_of(error) == "NOPERM":
            _unable.add(client)
        elif is_no_reply(error):
            with suppress(Exception):  # the primary is asked in any case
                yield RefreshMap()
    return (yield from _deliver([step.command], again=True))[0]


def _deliver(commands: list[Command], *, again: bool) -> Acts[list[Any]]:
    """Send commands to the owner of their key until it has executed the first, or refuses to."""
    key = _key(commands[0])
    until, pauses = time.monotonic() + PATIENCE, _pauses()
    lost: Exception | None = None  # of a call that was sent, perhaps, and not answered
    losses = 0
    while True:
        node: Any = None
        try:
            node = yield Owner(key)
            return (yield from _follow(node, commands))
        except Exception as error:
            met, word = error, word_of(error)
        if word in _NOT_HERE:
            known = yield from _learn(key, node)
            if word == "CLUSTERDOWN" and not known:
                raise lost or met
        elif word not in _NOT_NOW:
            if word or not is_no_reply(met):
                raise met  # it has answered
            lost = met
            losses += 1 if (yield from _learn(key, node)) else 2
            if not again or losses > RESENDS:
                raise met
        if time.monotonic() > until:
            raise lost or met
        if pause := next(pauses):
            yield Sleep(pause)


def _key(command: Command) -> Any:
    return command[_ADDRESS.get(str(command[0]), 1)]


def _follow(node: Any, commands: list[Command]) -> Acts[list[Any]]:
    """Send commands to a node, or to the one that it says to ask."""
    try:
        return (yield from _sent(node, commands))
    except Exception as error:
        if word_of(error) != "ASK":
            raise
        ask: Any = error
    node = yield Address(ask.host, ask.port)
    if node is None:
        raise ask
    asking: Command = ("ASKING",)
    # The reply to ASKING is an OK, so it is never what a first error is taken from.
    replies = yield from _sent(node, [each for command in commands for each in (asking, command)], 1)
    return replies[1::2]


def _sent(node: Any, commands: list[Command], decisive: int = 0) -> Acts[list[Any]]:
    """Send commands; raise the error that stands in the `decisive` place, if there is one."""
    try:
        replies: list[Any] = yield Send(node, commands)
        if isinstance(replies[decisive], Exception):
            raise replies[decisive]
    except AttributeError as error:
        # An asyncio client of redis-py 8.1, where another task has closed the connection.
        raise ConnectionError(f"the connection was closed while it was in use: {error}") from error
    return replies


def _learn(key: Any, node: Any) -> Acts[bool]:
    """Find the owner of a key anew; return whether there is one to be reached."""
    try:
        yield RefreshSlot(key, node)
    except Exception as error:
        return word_of(error) != "CLUSTERDOWN" and not is_no_reply(error)
    return True


def _pauses() -> Iterator[float]:
    yield 0.0
    pause = 0.005
    while True:
        yield pause
        pause = min(0.25, pause * 2)
