"""Calls on a cluster: redirections and migrating slots, for both drivers, without I/O.

A cluster client can follow redirections itself, but not in the way that a filter needs:

* WAIT must use the connection of the write.
* ASKING must use the connection of the command after it.
* A node refuses a call with several keys while their slot migrates (TRYAGAIN).
* A call that is not idempotent must not be resent if it may have been executed.

So this module sends each call directly to the node that owns its key and handles that node's errors.  The
client only keeps the slot map.

Operations here yield acts, which the drivers perform.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import suppress
from functools import cache
from typing import Any, Final, NamedTuple, Protocol, TypeVar
from weakref import WeakSet

from bloomredis.protocol.clock import pauses
from bloomredis.protocol.judging import attempts_of, judge
from bloomredis.protocol.replies import is_no_reply, word_of
from bloomredis.protocol.steps import Call, Command, Part, Reply, Sleep, joined, key_of, parted

RETRY_SECONDS: Final = 30.0
"""The seconds for which a call is retried while its slot migrates.

A migration takes milliseconds, or seconds for a large filter.  The limit must stay below the ten minutes for
which the server keeps the receipt of a call.
"""

RESENDS: Final = 3
"""The limit of resends after lost replies; a loss counts twice if the client did not find the slot's owner.

The client's own retries happen in between.
"""

_NOT_HERE: Final = frozenset(("MOVED", "CLUSTERDOWN", "READONLY"))
_NOT_NOW: Final = frozenset(("ASK", "TRYAGAIN"))


def may_have_moved(error: Exception) -> bool:
    """Return True if the client's slot map may be out of date."""
    word = word_of(error)
    return word in _NOT_HERE or (not word and is_no_reply(error))


def may_repeat(call: Call, error: Exception) -> bool:
    """Return True if the error proves that the call was not executed, or if it is safe to execute twice."""
    word = word_of(error)
    return word in _NOT_HERE or word in _NOT_NOW or (is_no_reply(error) and call.again)


class Retries:
    """The retries of one call; `pause_after` raises the error of the last attempt if no retry may follow."""

    def __init__(self, call: Call) -> None:
        self._call = call
        self._deadline = time.monotonic() + RETRY_SECONDS
        self._pauses = pauses()
        self._losses = 0

    def pause_after(self, error: Exception, *, owner_found: bool) -> float:
        """Return the seconds to wait before the next attempt, or raise the error of the last one."""
        word = word_of(error)
        if not may_repeat(self._call, error) or (word == "CLUSTERDOWN" and not owner_found):
            raise error
        if not word:
            self._losses += 1 if owner_found else 2
        if self._losses > RESENDS or time.monotonic() > self._deadline:
            raise error
        return next(self._pauses)


T = TypeVar("T")

_without_read_only: Final[WeakSet[object]] = WeakSet()
"""Clients whose servers lack EVALSHA_RO or forbid it."""


class Node(Protocol):
    """A node of a cluster, as its clients name it."""

    @property
    def name(self) -> str:
        """Its address."""

    @property
    def host(self) -> str:
        """The host of its address."""


class NodesManager(Protocol):
    """The part of a cluster client that holds its slot map."""

    def initialize(self) -> Any:
        """Read the slot map; an asyncio client returns a coroutine that does."""

    def get_node_from_slot(self, slot: int, *, read_from_replicas: bool, **options: object) -> Node:
        """Return the node to read a slot from."""

    def remap_host_port(self, host: str, port: int) -> tuple[str, int]:
        """Return the address at which the client reaches a node, by its option `address_remap`."""


class Client(Protocol):
    """The methods of a cluster client, sync or asyncio, that look up nodes."""

    nodes_manager: NodesManager

    def execute_command(self, *command: Part) -> Any:
        """Send a command to the node that owns its key."""

    def get_node_from_key(self, key: Part) -> Node | None:
        """Return the node that owns a key."""

    def get_node(self, *, node_name: str) -> Node | None:
        """Return the node at an address."""

    def keyslot(self, key: Part) -> int:
        """Return the slot of a key."""


class NodeToWrite(NamedTuple):
    """Look up the node that owns a key in the client's slot map."""

    key: Part


class NodeToRead(NamedTuple):
    """Look up the node that the client would read a key from; None if it reads from primaries."""

    key: Part


class NodeAt(NamedTuple):
    """Look up the node at an address that the node `by` names; make one if the client does not know it."""

    host: str
    port: int
    by: Node


class Send(NamedTuple):
    """Send commands to a node over one connection in one round trip; error replies may come as values.

    :ivar is_made: the node was made by `NodeAt`, and its connection is closed afterwards.
    """

    node: Node
    commands: list[Command]
    is_made: bool = False


class SendAll(NamedTuple):
    """Send to several nodes at once; the result lists the replies of each node, or its error."""

    sends: list[Send]


class RefreshSlot(NamedTuple):
    """Refresh the owner of a key's slot unless the map already names another node."""

    key: Part
    node: Node | None


class RefreshMap(NamedTuple):
    """Re-read the slot map."""


Act = NodeToWrite | NodeToRead | NodeAt | Send | SendAll | RefreshSlot | RefreshMap | Sleep

Acts = Generator[Act, Any, T]
"""An operation that yields acts and returns a T."""


@cache
def is_cluster(kind: type) -> bool:
    """Return True if a client's class is a cluster client's."""
    return hasattr(kind, "get_node_from_key")


def node_at(client: Client, act: NodeAt, new: Callable[[str, int], Node]) -> tuple[Node, bool]:
    """Return the node at an address, and whether it was made; a node without slots is in no slot map."""
    # A node that does not know its own name, or is told to hide it, leaves the host out.
    said = act.by.host if act.host in ("", "?") else act.host
    host, port = client.nodes_manager.remap_host_port(said, act.port)
    known = client.get_node(node_name=f"{host}:{port}")
    return (known, False) if known else (new(host, port), True)


def look_up(client: Client, act: NodeToWrite | NodeToRead) -> Node | None:
    """Return a node from the client's slot map."""
    if isinstance(act, NodeToWrite):
        return client.get_node_from_key(act.key)
    strategy = getattr(client, "load_balancing_strategy", None)
    if not strategy and not getattr(client, "read_from_replicas", False):
        return None
    options: Mapping[str, object] = {"load_balancing_strategy": strategy} if strategy else {}
    slot = client.keyslot(act.key)
    return client.nodes_manager.get_node_from_slot(slot, read_from_replicas=True, **options)


def probe(client: Client, act: RefreshSlot) -> Command | None:
    """Return a command that makes the client refresh a key's slot; None if the client already did.

    The command is sent through the client, which follows redirections and re-reads its map as it sees fit.
    The command changes nothing, but counts as a write, so that no replica answers it.
    """
    with suppress(Exception):
        if client.get_node_from_key(act.key) is not act.node:
            return None
    return ("SETRANGE", act.key, 0, b"")


def run(client: object, calls: Sequence[Call]) -> Acts[list[Reply]]:
    """Make independent calls: one pipeline a node, all nodes at once; return each answer or error.

    A failed call that was not executed, or may be repeated, is then made by itself.
    """
    for call in calls:
        call.pass_to_client()
    groups, single = yield from _by_node(client, calls)
    sends = [Send(node, joined(calls[i] for i in group)) for node, group in groups]
    outcomes: list[list[Reply] | Exception] = (yield SendAll(sends)) if sends else []
    each: list[Reply]
    answers: list[Reply] = [None] * len(calls)
    for (_, group), replies in zip(groups, outcomes, strict=True):
        own = [calls[i] for i in group]
        if isinstance(replies, Exception):
            each = [_met(replies)] * len(own)
        else:
            each = parted(own, map(_met, replies))
        for i, answer in zip(group, each, strict=True):
            answers[i] = answer
            first = answer[0] if isinstance(answer, list) else answer
            judge(calls[i], first)
            if isinstance(first, Exception) and may_repeat(calls[i], first):
                calls[i].attempts = attempts_of(first)
                single.append(i)
    for i in single:
        try:
            answers[i] = yield from make(client, calls[i])
        except Exception as error:
            answers[i] = error
    return answers


def make(client: object, call: Call) -> Acts[Reply]:
    """Make one call."""
    call.pass_to_client()
    if call.text:
        return (yield from _read(client, call))
    if call.is_single:
        return (yield from _deliver(call, call.commands))[0]
    if call.commands[-1][0] == "WAIT":
        return (yield from _deliver(call, call.commands))
    replies: list[Reply] = []
    for command in call.commands:
        try:
            replies += yield from _deliver(call, [command])
        except Exception as error:
            replies.append(error)
    return replies


def _by_node(client: object, calls: Sequence[Call]) -> Acts[tuple[list[tuple[Node, list[int]]], list[int]]]:
    """Return the nodes with the indexes of their calls, and the indexes of calls to make by themselves."""
    groups: dict[str, tuple[Node, list[int]]] = {}
    single: list[int] = []
    for i, call in enumerate(calls):
        node = yield from _node_of(client, call)
        if node is None:
            single.append(i)
        else:
            groups.setdefault(node.name, (node, []))[1].append(i)
    return list(groups.values()), single


def _node_of(client: object, call: Call) -> Acts[Node | None]:
    """Return the node that owns a call's key; None if the call must be made by itself."""
    if len(call.commands) > 1 and call.commands[-1][0] != "WAIT":
        return None  # each command may have its own node
    try:
        key = key_of(call.commands[0])
        by_replica = call.text and client not in _without_read_only
        if by_replica and (yield NodeToRead(key)) is not None:
            return None
        owner: Node | None = yield NodeToWrite(key)
    except Exception:
        return None
    return owner


def _read(client: object, call: Call) -> Acts[Reply]:
    """Run a read-only script on the node that the client reads from.

    A replica may lag behind and does not know which keys have migrated.  Its answers are used; if it refuses,
    the call goes to the primary.
    """
    (_, sha, *tail), text = call.commands[0], call.text
    node: Node | None = None
    try:
        node = None if client in _without_read_only else (yield NodeToRead(tail[1]))
        if node is not None:
            try:
                return (yield from _exchanged(node, [("EVALSHA_RO", sha, *tail)]))[0]
            except Exception as error:
                if word_of(error) != "NOSCRIPT":
                    raise
            return (yield from _exchanged(node, [("EVAL_RO", text, *tail)]))[0]
    except Exception as error:
        if "unknown command" in str(error).lower() or word_of(error) == "NOPERM":
            _without_read_only.add(client)
        elif is_no_reply(error):
            with suppress(Exception):  # if the cluster is down, the call to the primary raises
                yield RefreshMap()
    return (yield from _deliver(call, call.commands))[0]


def _deliver(call: Call, commands: list[Command]) -> Acts[list[Reply]]:
    """Send commands of a call to the owner of their key; retry until the first is executed or refused."""
    key, retries = key_of(commands[0]), Retries(call)
    while True:
        node: Node | None = None
        try:
            node = yield NodeToWrite(key)
            return (yield from _follow(node, commands))
        except Exception as error:
            met = error
        judge(call, met)
        found = (yield from _refresh(key, node)) if may_have_moved(met) else True
        pause = retries.pause_after(met, owner_found=found)
        call.attempts += attempts_of(met)
        if pause:
            yield Sleep(pause)


def _follow(node: Node, commands: list[Command]) -> Acts[list[Reply]]:
    """Send commands to a node; follow its ASK to another node."""
    try:
        return (yield from _exchanged(node, commands))
    except Exception as error:
        if word_of(error) != "ASK":
            raise
        ask: Any = error
    other, is_made = yield NodeAt(ask.host, ask.port, node)
    asking: Command = ("ASKING",)
    # Replies alternate.  The reply to ASKING is always OK, so the first command's reply decides.
    both = [each for command in commands for each in (asking, command)]
    replies = yield from _exchanged(other, both, 1, is_made=is_made)
    return replies[1::2]


def _exchanged(
    node: Node, commands: list[Command], decisive: int = 0, *, is_made: bool = False
) -> Acts[list[Reply]]:
    """Send commands and return their replies; raise the reply at index `decisive` if it is an error."""
    try:
        replies: list[Reply] = yield Send(node, commands, is_made)
        first = replies[decisive]
        if isinstance(first, Exception):
            raise first
    except AttributeError as error:
        raise _met(error) from error
    return replies


def _met(reply: T) -> T | ConnectionError:
    """Return a reply or an error; turn an `AttributeError` into a `ConnectionError`.

    redis-py 8.1 raises `AttributeError` if a task closes a connection that another task uses.
    """
    if not isinstance(reply, AttributeError):
        return reply
    return ConnectionError(f"the connection was closed while it was in use: {reply}")


def _refresh(key: Part, node: Node | None) -> Acts[bool]:
    """Refresh the owner of a key's slot; return False if the cluster is down or does not reply."""
    try:
        yield RefreshSlot(key, node)
    except Exception as error:
        return word_of(error) != "CLUSTERDOWN" and not is_no_reply(error)
    return True
