"""Steps: the commands that operations yield and drivers execute."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Sequence
from itertools import islice
from typing import Any, NamedTuple, TypeVar

T = TypeVar("T")

Command = tuple[str | bytes | int, ...]


class OnServer(NamedTuple):
    """A step for one of several servers, given by index."""

    server: int
    step: Any  # a Step


class Concurrent(NamedTuple):
    """Steps for different servers, executed concurrently; errors come as values."""

    steps: Sequence[Any]  # Steps


class Pipelined(NamedTuple):
    """Independent steps for one server or cluster, pipelined; errors come as values."""

    steps: Sequence[Any]  # Steps


class ReadOnly(NamedTuple):
    """A read-only script, by SHA and by text: a replica may answer."""

    command: Command
    text: str


class AtMostOnce(NamedTuple):
    """A step that is not idempotent: never retried once sent."""

    step: Any  # a Command, or several


class NextBatch(NamedTuple):
    """The next batch of the caller's items, None after the last; given to `take`, which may take long."""

    source: Any  # an iterator, or with an asyncio driver also an async iterator
    take: Callable[[list[Any]], object] | None = None


class Compute(NamedTuple):
    """A computation that takes long: asyncio leaves it to a thread."""

    function: Callable[[], Any]


class Sleep(NamedTuple):
    """Nothing to do for so many seconds."""

    seconds: float


Here = NextBatch | Compute | Sleep
"""A step that is for no server."""

Step = Command | list[Command] | OnServer | Concurrent | Pipelined | ReadOnly | AtMostOnce | Here
"""A command, whose error is thrown into the operation; a list of commands for one connection in one round
trip, whose errors come as values; or one of the classes above."""

Op = Generator[Step, Any, T]
"""An operation that yields steps and returns a T."""


def commands_of(step: Any) -> list[Command]:
    """Return the commands of a step for one server."""
    if isinstance(step, ReadOnly):
        return [step.command]
    if isinstance(step, AtMostOnce):
        return commands_of(step.step)
    return step if isinstance(step, list) else [step]


def regrouped(steps: Sequence[Any], replies: Iterable[Any]) -> list[Any]:
    """Return the result of each step, given the replies to all their commands in order."""
    rest = iter(replies)
    answers = []
    for step in steps:
        own = list(islice(rest, len(commands_of(step))))
        plain = step.step if isinstance(step, AtMostOnce) else step
        answers.append(own if isinstance(plain, list) else own[0])
    return answers
