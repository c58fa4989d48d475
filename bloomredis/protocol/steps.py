"""Steps: what operations yield and drivers execute."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Generator, Iterable, Iterator, Sequence
from itertools import islice
from time import monotonic
from typing import Any, Final, NamedTuple, TypeAlias, TypeVar

T = TypeVar("T")

Part = str | bytes | int
Command = tuple[Part, ...]
Wire = tuple[list[bytes], int]
"""Commands encoded for the wire, and the number of their replies."""

Reply: TypeAlias = "bytes | str | int | float | list[Reply] | dict[Reply, Reply] | Exception | None"
"""A server's reply or its error; a text is bytes unless the client has decoded it."""
Outcome: TypeAlias = "Reply | BaseException"
"""The outcome of a call: its reply or error, or an interruption of the caller."""


_FIRST_KEY: Final = {"EVAL": 3, "EVALSHA": 3}
"""The index of the first key in a command, if it is not 1."""


def key_of(command: Command) -> Part:
    """Return the first key of a command."""
    return command[_FIRST_KEY.get(str(command[0]), 1)]


def as_text(key: Part) -> str:
    """Return a key as text."""
    return key.decode(errors="backslashreplace") if isinstance(key, bytes) else str(key)


class Call:
    """Commands for one server, sent together over one connection; calls are compared by identity.

    It is no `ABC`: each call is tested for this class, and that would take a function of `abc` each time.
    The attributes are those of most calls; a call sets the others when it is made.
    """

    is_single = True
    """The answer is the reply to the only command, whose error is thrown into the operation.

    Otherwise the answer is a list, in which errors are values.
    """
    text = ""
    """The text of a read-only script, which a replica may execute; empty for all other calls."""
    again = True
    """The call may be retried after a lost reply."""

    # The record of the attempts, which `judging.judge` reads.
    lost: str | None = None
    """The text of the error of an attempt that may have been executed, until an attempt is answered."""
    by_client = False
    """The client made an attempt, which it may have resent unnoticed."""
    begun: float | None = None
    """The monotonic time at which the client made the first attempt."""
    attempts = 0
    """The attempts on nodes of a cluster that failed, without the last one."""
    stands_for: Sequence[Call] = ()
    """The calls that share its attempts: it is a copy of them, or does their work."""

    @property
    def commands(self) -> list[Command]:
        """The commands, sent together."""
        raise NotImplementedError

    @property
    def about(self) -> str:
        """The filter or key that the call is about, for the text of an error."""
        return as_text(key_of(self.commands[0]))

    def lose(self, error: BaseException) -> None:
        """Record an attempt that may have been executed, and got no answer."""
        self.lost = str(error)  # not the error, whose traceback refers to this call
        for each in self.stands_for:
            each.lose(error)

    def pass_to_client(self) -> None:
        """Record that the client makes an attempt."""
        self.by_client = True
        self.begun = self.begun or monotonic()
        for each in self.stands_for:
            each.pass_to_client()

    def wire(self) -> Wire | None:
        """Return the encoded commands and the number of replies; None if the client must encode them."""
        return None


class PlainCall(Call):
    """A call of given commands."""

    def __init__(
        self,
        commands: list[Command],
        *,
        is_single: bool = True,
        text: str = "",
        again: bool = True,
    ) -> None:
        self._commands = commands
        self.is_single = is_single
        self.text = text
        self.again = again

    @property
    def commands(self) -> list[Command]:
        """The commands, sent together."""
        return self._commands

    def __repr__(self) -> str:
        return f"PlainCall({self._commands}, {self.is_single}, {self.again})"


class Many(NamedTuple):
    """Independent calls, made together; the answer lists the reply or error of each."""

    calls: Sequence[Call]


Batches = Iterator[list[Any]] | AsyncIterator[list[Any]]
"""Batches of items; only an asyncio driver takes an async iterator."""


class Next(NamedTuple):
    """Read the next batch of the caller's items; the answer is the batch, or None after the last.

    :param source: an iterator of batches (`Batches`).
    :param take: a function that is called with the batch before the operation goes on; the asyncio driver
        runs it in a thread.
    """

    source: Any
    take: Callable[[list[Any]], object] | None = None


class Compute(NamedTuple):
    """A long computation, which the asyncio driver runs in a thread."""

    function: Callable[[], object]


class Sleep(NamedTuple):
    """A pause in seconds."""

    seconds: float


class Ask(NamedTuple):
    """A request that a driver answers together with the requests of other callers.

    :param request: a `ClaimRequest`.
    """

    request: Any


LocalStep = Next | Compute | Sleep
"""A step that the driver executes without a server."""

Step = Call | Many | LocalStep | Ask
"""A step of an operation."""

Op = Generator[Step, Any, T]
"""An operation that yields steps and returns a T.

The driver sends a `Reply` after a `Call`, a list of replies after `Many`, a batch after `Next`, a result
after `Compute`, and an answer after `Ask`.  No type of a generator can express this, so the variable that
receives it is annotated.
"""


def joined(calls: Iterable[Call]) -> list[Command]:
    """Return the commands of all calls, in order."""
    return [command for call in calls for command in call.commands]


def parted(calls: Iterable[Call], replies: Iterable[Reply]) -> list[Reply]:
    """Return the answer to each call, given the replies to all their commands in order."""
    rest = iter(replies)
    return [next(rest) if call.is_single else list(islice(rest, len(call.commands))) for call in calls]
