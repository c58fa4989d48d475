"""The network between clients and the server: messages, and retries by a client library."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import redis
from redis.crc import key_slot

from bloomredis.operations.claims.state import OWNER_BYTES
from bloomredis.protocol import scripts
from bloomredis.protocol.steps import Call
from bloomredis.stored.shards.record import SLOTS

_BY_WORD: Final = {
    "ERR": redis.exceptions.ResponseError,
    "NOSCRIPT": redis.exceptions.NoScriptError,
    "READONLY": redis.exceptions.ReadOnlyError,
    "OOM": redis.exceptions.OutOfMemoryError,
    "NOPERM": redis.exceptions.NoPermissionError,
    "NOAUTH": redis.exceptions.AuthenticationError,
    "LOADING": redis.exceptions.BusyLoadingError,
    "MASTERDOWN": redis.exceptions.MasterDownError,
}
_SCRIPTS: Final = [*scripts.every_script()]
_VERBS: Final = {name: each.verb for each in _SCRIPTS for name in (each.sha, each.text)}
KNOWN_SCRIPTS: Final = {each.sha: each.text.encode() for each in _SCRIPTS}
"""The texts of all scripts."""


def error_of(text: str) -> Exception:
    """Return the client library's exception for an error reply."""
    word, _, rest = text.partition(" ")
    kind = _BY_WORD.get(word)
    return redis.exceptions.ResponseError(text) if kind is None else kind(rest)


_OWNERS: Final = {
    "claim": slice(3, 4),
    "commit": slice(2, 3),
    "extend": slice(1, None),
    "release": slice(None),
}
"""The arguments with the owners, by verb; a generation may precede an owner."""


def verb_of(command: Sequence[Any]) -> str:
    """Return the verb of the script that a command runs, or the command's own name."""
    verb = _VERBS.get(command[1]) if command[0] in ("EVALSHA", "EVAL") else None
    if verb == "module_reserve" and command[5] == b"":  # a read that creates nothing
        return "describe"
    return verb.removeprefix("module_") if verb else str(command[0])


def key_of(command: Sequence[Any]) -> bytes:
    """Return the first key of a command."""
    key = command[3 if str(command[0]).startswith("EVAL") else 1]
    return key if isinstance(key, bytes) else str(key).encode()


def node_of(key: bytes, nodes: int) -> int:
    """Return the node of a cluster that has a key: each has a range of slots, as long as the others."""
    return 0 if nodes == 1 else key_slot(key) * nodes // SLOTS


def owners_in(command: Sequence[Any]) -> list[bytes]:
    """Return the owners in a command about claims, in order; none for another command."""
    at = _OWNERS.get(verb_of(command))
    if at is None:
        return []
    size = OWNER_BYTES
    return [
        owners[i : i + size]
        for owners in command[3 + int(command[2]) :][at]
        for i in range(len(owners) % size, len(owners), size)
    ]


class Message:
    """One attempt to send commands; those with a reply have been executed."""

    __slots__ = ("clock", "exchange", "name", "replies")

    def __init__(self, exchange: Exchange, name: str, clock: int) -> None:
        self.exchange, self.name, self.clock = exchange, name, clock
        self.replies: list[Any] = []

    @property
    def is_executed(self) -> bool:
        """Whether all of its commands were executed."""
        return len(self.replies) == len(self.exchange.commands)

    def copied(self, name: str) -> Message:
        """Return a copy without executed commands."""
        return Message(self.exchange, name, self.clock)


class Exchange:
    """Commands that a client sends until it has the replies, or gives up.

    :ivar requests: the requests that it is sent for.
    :ivar place: the index of the node, if there are several.
    :ivar is_part: other nodes get the rest of its pipeline, and one error ends them all.
    :ivar executions: executions of its commands, by any attempt.
    :ivar calls: the calls whose record gets its lost attempts, if no driver of the library writes it.
    :ivar answer: called with the reply.
    :ivar fail: called with the error.
    """

    __slots__ = (
        *(
            "answer",
            "calls",
            "commands",
            "executions",
            "fail",
            "is_part",
            "is_single",
            "message",
            "owner",
            "place",
            "ref",
        ),
        *("requests", "retries", "sendings", "verb"),
    )

    def __init__(
        self,
        ref: str,
        owner: Any,
        commands: Sequence[Sequence[Any]],
        requests: Sequence[Any],
        *,
        is_single: bool,
        place: int = 0,
        calls: Sequence[Call] = (),
    ) -> None:
        self.ref, self.owner, self.commands, self.requests = ref, owner, commands, requests
        self.answer: Callable[[Any], object]
        self.fail: Callable[[BaseException], object]
        self.is_single, self.place, self.calls = is_single, place, calls
        self.retries = owner.process.retries
        self.verb = verb_of(commands[0])
        self.is_part = False
        self.sendings = self.executions = 0
        self.message: Message | None = None

    def lose(self) -> None:
        """Record that an attempt was lost, and that the client resends."""
        for call in self.calls:
            call.lose(redis.exceptions.ConnectionError("an earlier attempt"))


class Network:
    """Messages in flight.

    :ivar exchanges: the exchanges that clients wait for.
    :ivar strays: messages that nobody waits for any more, and that may still be executed.
    """

    def __init__(self) -> None:
        self.exchanges: dict[str, Exchange] = {}
        self.strays: dict[str, Message] = {}

    def of(self, ref: str) -> list[Exchange]:
        """Return the exchanges of a call: one, or one for each server."""
        return [each for name, each in self.exchanges.items() if name == ref or name.startswith(f"{ref}@")]

    def send(self, exchange: Exchange, clock: int) -> None:
        """Send the commands of an exchange, for the first time or as a retry."""
        exchange.sendings += 1
        exchange.message = Message(exchange, f"{exchange.ref}.{exchange.sendings}", clock)
        self.exchanges[exchange.ref] = exchange

    def has_strays(self, exchange: Exchange) -> bool:
        """Return whether another message of an exchange is still in flight."""
        return any(message.exchange is exchange for message in self.strays.values())

    def leave(self, message: Message) -> None:
        """Leave a message that was not executed in the network."""
        if not message.is_executed:
            self.strays[message.name] = message

    def copy(self, exchange: Exchange) -> None:
        """Leave an earlier attempt to send a message in the network."""
        message = exchange.message
        if message is not None and f"{message.name}c" not in self.strays:
            exchange.lose()
            self.strays[f"{message.name}c"] = message.copied(f"{message.name}c")

    def answer(self, exchange: Exchange) -> None:
        """Give a client the replies that it waits for."""
        message = exchange.message
        if message is None or not message.is_executed:
            return
        del self.exchanges[exchange.ref]
        if not exchange.is_single:
            exchange.answer(list(message.replies))
        elif isinstance(message.replies[0], Exception):
            exchange.fail(message.replies[0])
        else:
            exchange.answer(message.replies[0])

    def break_connection(self, exchange: Exchange, error: Exception, clock: int, *, late: bool) -> None:
        """Break a client's connection: the library retries, or the caller gets the error."""
        if exchange.message is not None and late:
            self.leave(exchange.message)
        if exchange.sendings <= exchange.retries:
            exchange.lose()
            self.send(exchange, clock)
            return
        del self.exchanges[exchange.ref]
        exchange.fail(error)

    def abandon(self, exchange: Exchange) -> None:
        """Drop an exchange whose caller has left; its messages stay in flight.

        An exchange with its replies has gone, and another one may have its name.
        """
        if self.exchanges.get(exchange.ref) is exchange and exchange.message is not None:
            del self.exchanges[exchange.ref]
            self.leave(exchange.message)
