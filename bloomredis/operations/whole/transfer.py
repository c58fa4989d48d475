"""Saving, restoring and copying: the parts of a filter go from where they are to where they are wanted.

Either is a server or a file.  They travel in pieces of 128 KB, some of them together, so that the memory that
it takes does not depend on the size of the filter.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import BinaryIO, Protocol, TypeVar

from bloomredis.errors import BloomError
from bloomredis.operations.whole.files import Reader, Writer
from bloomredis.protocol.gather import through
from bloomredis.protocol.pieces import PIECE_BYTES
from bloomredis.protocol.steps import Call, Compute, Many, Op, Step
from bloomredis.stored import encoding
from bloomredis.stored.saved import mergeable, reading, restoring
from bloomredis.stored.saved.format import Part, Saved, called
from bloomredis.stored.state.base import Stored
from bloomredis.stored.state.versioned import Versioned

T = TypeVar("T")
Progress = Callable[[int, int], object]
"""Called with the bytes that are done, and all of them."""


class Source(Protocol):
    """A filter that is read."""

    @property
    def saved(self) -> Saved:
        """All but the bits."""

    def read(self, part: Part, run: range) -> Op[list[bytes]]:
        """Return the bytes of a part from each of these on, in order."""


class Target(Protocol):
    """A filter that is written."""

    def begin(self) -> Op[None]:
        """Check that it can be written."""

    def write(self, part: Part, pieces: Sequence[tuple[int, bytes]]) -> Op[None]:
        """Write pieces of a part, in order."""

    def publish(self) -> Op[None]:
        """Make it appear."""

    def discard(self) -> Op[None]:
        """Delete what was written."""


class FileSource:
    """A saved filter in a file; what was cut or changed is a `ValueError`."""

    def __init__(self, file: BinaryIO) -> None:
        self._reader = Reader(file)
        self.saved = self._reader.saved

    def read(self, part: Part, run: range) -> Op[list[bytes]]:
        """Return the next bytes of the file."""
        sizes = [min(PIECE_BYTES, part.num_bytes - first) for first in run]
        data: list[bytes] = yield Compute(lambda: list(map(self._reader.take, sizes)))
        return data

    def end(self) -> Op[None]:
        """Check the whole file."""
        yield Compute(self._reader.check)


class FileTarget:
    """A file that a filter is saved to."""

    def __init__(self, file: BinaryIO, saved: Saved) -> None:
        self._writer = Writer(file)
        self._saved = saved

    def begin(self) -> Op[None]:
        """Write all but the bits."""
        yield Compute(partial(self._writer.put, self._saved.preamble()))

    def write(self, part: Part, pieces: Sequence[tuple[int, bytes]]) -> Op[None]:  # noqa: ARG002 - they come in order
        """Write the next bits."""
        yield Compute(partial(self._writer.put, b"".join(piece for _, piece in pieces)))

    def publish(self) -> Op[None]:
        """Write the checksum."""
        yield Compute(self._writer.finish)

    def discard(self) -> Op[None]:
        """Leave the file to its owner."""
        yield from ()


class Named(Protocol):
    """The verbs of a filter, which may have its state in one place."""

    name: str


def within(side: int | None, operation: Op[T]) -> Op[T]:
    """Run an operation over one of several clients, each of which may be one of several servers."""
    if side is None:
        return (yield from operation)

    def sent(step: Step) -> Op[object]:
        return (yield step.to(side) if isinstance(step, Call | Many) else step)

    return (yield from through(operation, sent))


def stored_of(operations: Named) -> Stored:
    """Return the state of a filter that can be read.  Raises `TypeError` for bitmaps and keys of others."""
    stored = getattr(operations, "stored", None)
    if not isinstance(stored, Stored):
        raise TypeError(f"{operations.name!r} is in several bitmaps of another system, which are not copied")
    reading.check(stored)
    return stored


def class_of(operations: Named) -> str:
    """Return the public class of a filter, whatever a program calls its own."""
    stored = stored_of(operations)
    return stored.called if isinstance(stored, Versioned) else ""


def save(stored: Stored, file: BinaryIO, progress: Progress | None) -> Op[None]:
    """Write a filter to a file."""
    source = yield from reading.parts_of(stored)
    yield from _transfer(source, FileTarget(file, source.saved), progress)


def restore(
    name: str, of: str, servers: int, file: BinaryIO, *, encoded: int | None, progress: Progress | None
) -> Op[None]:
    """Put the filter of a file under a name.

    :param of: the class that it has to be of.
    :param servers: how many servers a sharded filter is spread over.
    :param encoded: the encoding of its items, None where any will do.
    """
    source: FileSource = yield Compute(partial(FileSource, file))
    if called(source.saved) != of:
        raise ValueError(f"the file holds a {called(source.saved)}, not a {of}: use {called(source.saved)}")
    encoding.check(f"the file for {name}", mergeable.whole(source.saved).encoding, encoded)
    target = yield from restoring.target(name, source.saved, servers)
    yield from _transfer(source, target, progress, end=source.end)


def copy(stored: Stored, name: str, servers: int, progress: Progress | None) -> Op[None]:
    """Put a copy of a filter under another name; over two clients, the second for the copy."""
    source = yield from within(0, reading.parts_of(stored))
    target = yield from within(1, restoring.target(name, source.saved, servers))
    yield from _transfer(source, target, progress, sides=(0, 1))


def _transfer(
    source: Source,
    target: Target,
    progress: Progress | None,
    *,
    sides: tuple[int | None, int | None] = (None, None),
    end: Callable[[], Op[None]] | None = None,
) -> Op[None]:
    total, done = sum(part.num_bytes for part in source.saved.parts), 0
    there, here = sides
    try:
        yield from within(here, target.begin())
        for part in source.saved.parts:
            for run in reading.runs(part):
                data = yield from within(there, source.read(part, run))
                yield from within(here, target.write(part, list(zip(run, data, strict=True))))
                done += sum(map(len, data))
                if progress is not None:
                    progress(done, total)
        if end is not None:
            yield from end()
        yield from within(here, target.publish())
    except Exception:
        with suppress(BloomError):
            yield from within(here, target.discard())
        raise
