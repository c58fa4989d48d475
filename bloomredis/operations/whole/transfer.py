"""Saving, restoring and copying: the parts of a filter are transferred from a source to a target.

Source and target are a server or a file.  The parts are sent in pieces of 128 KB, a few at a time, so the
memory does not depend on the size of the filter.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import BinaryIO, Protocol, TypeVar

from bloomredis.errors import BloomError
from bloomredis.operations.items.outcomes import TRANSIENT
from bloomredis.operations.options import Progress
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


class TransferSource(Protocol):
    """The source of a transfer."""

    @property
    def saved(self) -> Saved:
        """The filter without its bits."""

    def read(self, part: Part, run: range) -> Op[list[bytes]]:
        """Return the pieces of a part that begin at the bytes in `run`, in order."""


class TransferTarget(Protocol):
    """The target of a transfer."""

    def begin(self) -> Op[None]:
        """Check that the target can be written, and prepare it."""

    def write(self, part: Part, pieces: Sequence[tuple[int, bytes]]) -> Op[None]:
        """Write pieces of a part, in order."""

    def publish(self) -> Op[None]:
        """Complete the target, which appears now."""

    def discard(self) -> Op[None]:
        """Delete what was written."""


class FileSource:
    """A saved filter in a file.  Raises `ValueError` for a file that was truncated or changed."""

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
        yield Compute(self._reader.check_digest)


class FileTarget:
    """A file to which a filter is saved."""

    def __init__(self, file: BinaryIO, saved: Saved) -> None:
        self._writer = Writer(file)
        self._saved = saved

    def begin(self) -> Op[None]:
        """Write the filter without its bits."""
        yield Compute(partial(self._writer.put, self._saved.preamble()))

    def write(self, part: Part, pieces: Sequence[tuple[int, bytes]]) -> Op[None]:  # noqa: ARG002 - the parts come in order
        """Write the next bits."""
        yield Compute(partial(self._writer.put, b"".join(piece for _, piece in pieces)))

    def publish(self) -> Op[None]:
        """Write the checksum."""
        yield Compute(self._writer.finish)

    def discard(self) -> Op[None]:
        """Do nothing: the caller handles the file."""
        yield from ()


class Reserving(Protocol):
    """The operations of a filter of any kind."""

    def reserve(self, *, marks: bool | None = None) -> Op[None]:
        """Create the filter, or open the stored one."""


class Named(Protocol):
    """The operations of a filter, which may or may not have a `stored` state."""

    name: str


def within(side: int | None, operation: Op[T]) -> Op[T]:
    """Run an operation over the client with the number `side`; None if there is only one client."""
    if side is None:
        return (yield from operation)

    def sent(step: Step) -> Op[object]:
        return (yield step.to(side) if isinstance(step, Call | Many) else step)

    return (yield from through(operation, sent))


def opened(operations: Reserving, *, marks: bool | None = None) -> Op[None]:
    """Open a filter that has been stored; without an answer, its first call opens it."""
    with suppress(*TRANSIENT):
        yield from operations.reserve(marks=marks)


def stored_of(operations: Named) -> Stored:
    """Return the state of a filter.  Raises `TypeError` for another system's bitmaps and module keys."""
    stored = getattr(operations, "stored", None)
    if not isinstance(stored, Stored):
        raise TypeError(
            f"{operations.name!r} is in several bitmaps of another system, which cannot be copied"
        )
    reading.check_readable(stored)
    return stored


def class_of(operations: Named) -> str:
    """Return the name of the public class of a filter, even for a subclass."""
    stored = stored_of(operations)
    return stored.called if isinstance(stored, Versioned) else ""


def save(stored: Stored, file: BinaryIO, progress: Progress | None) -> Op[None]:
    """Write a filter to a file."""
    source = yield from reading.read_parts(stored)
    yield from _transfer(source, FileTarget(file, source.saved), progress)


def restore(
    name: str, of: str, file: BinaryIO, *, encoded: int | None, progress: Progress | None
) -> Op[None]:
    """Restore the filter of a file under a name.

    :param of: the class that the filter must have.
    :param encoded: the encoding that its items must have; None for any.
    """
    source: FileSource = yield Compute(partial(FileSource, file))
    if called(source.saved) != of:
        raise ValueError(f"the file holds a {called(source.saved)}, not a {of}: use {called(source.saved)}")
    encoding.check_encoding(f"the file for {name}", mergeable.whole(source.saved).encoding, encoded)
    target = yield from restoring.target(name, source.saved)
    yield from _transfer(source, target, progress, end=source.end)


def copy(stored: Stored, name: str, progress: Progress | None) -> Op[None]:
    """Copy a filter to another name, over two clients; the second is that of the copy."""
    source = yield from within(0, reading.read_parts(stored))
    target = yield from within(1, restoring.target(name, source.saved))
    yield from _transfer(source, target, progress, sides=(0, 1))


def _transfer(
    source: TransferSource,
    target: TransferTarget,
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
            for run in reading.byte_ranges(part):
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
