"""Clients that detect when an operation replaces a filter, and stop it or its process half-way."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from tests.support.proxy import verbs

REPLACED: Final = "replaced"
"""In place of a verb: any command that replaces the filter."""

_WRITES: Final = {"add_layer": (0, 1), "reserve_record": (2, 0), "clear": (0, 1)}
"""Scripts that replace a filter: the index of the old value's argument, and that of the new one's."""

GENERATION: Final = slice(40, 48)
"""The bytes of the generation in a header."""


@dataclass
class Watch:
    """The commands of an operation.

    :param stop: is called once, after that many commands with one of these verbs.
    :ivar replaced: the start and end of the time in which the filter was replaced.
    """

    name: bytes
    stop: Callable[[], object] = lambda: None
    at: Collection[str] = ()
    after: int = 1
    told: Callable[[float, float], object] = lambda start, end: None
    replaced: list[tuple[float, float]] = field(default_factory=list)

    def sent(self, command: Sequence[Any], start: float, reply: Any) -> None:
        """Record a command and its reply."""
        verb = verbs().get(_bytes(command[1]), "") if str(command[0]).startswith("EVAL") else ""
        replaces = self._replaces(verb, command, reply)
        if replaces:
            end = time.monotonic()
            self.told(start, end)
            self.replaced.append((start, end))
        if verb in self.at or (replaces and REPLACED in self.at):
            self.after -= 1
            if self.after == 0:
                self.stop()

    def _replaces(self, verb: str, command: Sequence[Any], reply: Any) -> bool:
        if isinstance(reply, Exception) or verb not in ("delete", *_WRITES):
            return False
        first = 3 + int(command[2])
        if self.name not in map(_bytes, command[3:first]):
            return False
        if verb == "delete":
            return True
        values = [_bytes(each) for each in command[first:]]
        (known, wanted), stored = (values[at : at + 1] for at in _WRITES[verb]), _bytes(reply[0])
        began = bool(known and known[0] and wanted) and wanted[0][GENERATION].hex().encode() in stored
        return began and known[0][GENERATION] != wanted[0][GENERATION]


class Watched:
    """A client whose commands are recorded."""

    def __init__(self, client: Any, watch: Watch) -> None:
        self._client = client
        self._watch = watch

    def execute_command(self, *command: Any, **options: Any) -> Any:
        """Send a command."""
        start = time.monotonic()
        reply = self._client.execute_command(*command, **options)
        self._watch.sent(command, start, reply)
        return reply

    def pipeline(self, *, transaction: bool) -> Any:
        """Return a pipeline that is recorded too."""
        return _Pipeline(self._client.pipeline(transaction=transaction), self._watch)


class _Pipeline:
    def __init__(self, pipeline: Any, watch: Watch) -> None:
        self._pipeline = pipeline
        self._watch = watch
        self._commands: list[Sequence[Any]] = []

    def execute_command(self, *command: Any, **options: Any) -> None:
        self._commands.append(command)
        self._pipeline.execute_command(*command, **options)

    def execute(self, **options: Any) -> Any:
        start = time.monotonic()
        replies = self._pipeline.execute(**options)
        for command, reply in zip(self._commands, replies, strict=True):
            self._watch.sent(command, start, reply)
        return replies


def _bytes(value: Any) -> bytes:
    return value if isinstance(value, bytes) else str(value).encode()
