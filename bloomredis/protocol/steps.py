"""Steps: the commands that operations yield and drivers execute."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Sequence
from itertools import islice
from typing import Any, NamedTuple, TypeVar

T = TypeVar("T")

Command = tuple[str | bytes | int, ...]


class OnServer(NamedTuple):
    """A step for one of several servers, by its place among them."""

    server: int
    step: Any  # a Step


class Concurrent(NamedTuple):
    """Steps for different servers, executed at once; answered with a list in which errors stand as values."""

    steps: Sequence[Any]  # Steps


class Pipelined(NamedTuple):
    """Steps for one server or cluster that have nothing to do with each other, sent at once.

    It is answered with a list of what each is answered with, in which errors stand as values.
    """

    steps: Sequence[Any]  # Steps


class ReadOnly(NamedTuple):
    """A script that changes nothing, by its SHA, and its text: a replica may answer."""

    command: Command
    text: str


class AtMostOnce(NamedTuple):
    """A step that a driver must not send again once it may have been executed."""

    step: Any  # a Command, or several


class NextBatch(NamedTuple):
    """The next batch of the caller's items, None after the last."""

    source: Any  # an iterator, or with an asyncio driver also an async iterator


class Compute(NamedTuple):
    """A computation that takes long: asyncio leaves it to a thread."""

    function: Callable[[], Any]


Step = (
    Command | list[Command] | OnServer | Concurrent | Pipelined | ReadOnly | AtMostOnce | NextBatch | Compute
)
"""One command, answered with its reply or an error thrown in; or several to be sent over one
connection, in one round trip, answered with a list of replies in which errors stand as values."""

Op = Generator[Step, Any, T]
"""An operation that ends with a T."""


def commands_of(step: Any) -> list[Command]:
    """Return the commands of a step for one server."""
    if isinstance(step, ReadOnly):
        return [step.command]
    if isinstance(step, AtMostOnce):
        return commands_of(step.step)
    return step if isinstance(step, list) else [step]


def regrouped(steps: Sequence[Any], replies: Iterable[Any]) -> list[Any]:
    """Return what each step is answered with, given the replies to all their commands."""
    rest = iter(replies)
    answers = []
    for step in steps:
        own = list(islice(rest, len(commands_of(step))))
        plain = step.step if isinstance(step, AtMostOnce) else step
        answers.append(own if isinstance(plain, list) else own[0])
    return answers
