"""Steps: what operations yield and drivers execute."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, NamedTuple, TypeAlias, TypeVar

T = TypeVar("T")

Part = str | bytes | int
Command = tuple[Part, ...]
Wire = tuple[list[bytes], int]
"""Commands as they are sent, and the number of their replies."""

Reply: TypeAlias = "bytes | str | int | float | list[Reply] | dict[Reply, Reply] | Exception | None"
"""A server's reply, or the error in its place; a text is bytes unless the client has decoded it."""
Outcome: TypeAlias = "Reply | BaseException"
"""What came of a call: its reply or error, or an interruption of the caller."""


@dataclass(slots=True)
class Call:
    """Commands for one server, sent together over one connection.

    :ivar is_single: the answer is the reply to the only command, whose error is thrown into the operation;
        otherwise it is a list, in which errors are values.
    :ivar text: that of a read-only script, which a replica may execute; empty for all other calls.
    :ivar again: it may be sent again where it is not known whether it was executed.
    :ivar server: the way to its server: an index among several filters, one among several servers.
    """

    commands: list[Command]
    is_single: bool = True
    text: str = ""
    again: bool = True
    server: tuple[int, ...] = ()

    def to(self, server: int) -> Call:
        """Return the same call for one of several servers, or of several filters' servers."""
        return Call(self.commands, self.is_single, self.text, self.again, (server, *self.server))

    def wire(self) -> Wire | None:
        """Return the commands as they are sent, and the number of replies; None lets the client pack them."""
        return None


class Many(NamedTuple):
    """Calls that are independent of each other, made together; each is answered by its reply or its error."""

    calls: Sequence[Call]

    def to(self, server: int) -> Many:
        """Return the same calls for one of several servers, or of several filters' servers."""
        return Many([call.to(server) for call in self.calls])


Batches = Iterator[list[Any]] | AsyncIterator[list[Any]]
"""Batches of items, which come asynchronously with an asyncio driver alone."""


class Next(NamedTuple):
    """The next batch of the caller's items, None after the last; given to `take`, which may take long."""

    source: Any  # `Batches`: an iterator, or with an asyncio driver also an async iterator
    take: Callable[[list[Any]], object] | None = None


class Compute(NamedTuple):
    """A computation that takes long: asyncio leaves it to a thread."""

    function: Callable[[], object]


class Sleep(NamedTuple):
    """Nothing to do for so many seconds."""

    seconds: float


Here = Next | Compute | Sleep
"""A step that is for no server."""

Step = Call | Many | Here
"""One of the classes above."""

Op = Generator[Step, Any, T]
"""An operation that yields steps and returns a T.

What it is sent depends on the step: for a call its `Reply`, for many a list of these, for the next batch that
batch, for a computation its result.  No type says that of a generator, so the name that takes it has its own.
"""


def by_server(calls: Sequence[Call]) -> dict[tuple[int, ...], list[int]]:
    """Return the indexes of the calls for each server."""
    groups: dict[tuple[int, ...], list[int]] = {}
    for i, call in enumerate(calls):
        groups.setdefault(call.server, []).append(i)
    return groups


def joined(calls: Iterable[Call]) -> list[Command]:
    """Return the commands of calls that are sent together."""
    return [command for call in calls for command in call.commands]


def parted(calls: Iterable[Call], replies: Iterable[Reply]) -> list[Reply]:
    """Return the answer to each call, given the replies to all their commands in order."""
    rest = iter(replies)
    return [next(rest) if call.is_single else list(islice(rest, len(call.commands))) for call in calls]
