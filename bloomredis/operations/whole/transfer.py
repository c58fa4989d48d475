"""Saving, restoring and copying: the bits of a filter pass through this process.

They are read and written in turn, in pieces of 128 KB, a few at a time, so the memory does not depend on the
size of the filter.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import BinaryIO, Protocol

from bloomredis.errors import BloomError
from bloomredis.operations.items.outcomes import TRANSIENT
from bloomredis.operations.options import Progress
from bloomredis.operations.whole.files import Reader, Writer
from bloomredis.protocol.pieces import PIECE_BYTES
from bloomredis.protocol.steps import Batches, Compute, Next, Op
from bloomredis.stored import encoding
from bloomredis.stored.saved import mergeable, reading, restoring
from bloomredis.stored.saved.format import Part, Saved, called
from bloomredis.stored.state.base import Stored
from bloomredis.stored.state.versioned import Versioned

Read = Callable[[Part, range], Op[list[bytes]]]
"""Returns the pieces of a part that begin at these bytes, in order."""
Write = Callable[[Part, Sequence[tuple[int, bytes]]], Op[None]]
"""Writes pieces of a part, in order, each at its index."""


class OnStored(Protocol):
    """The operations of a filter of any kind."""

    @property
    def stored(self) -> Stored:
        """The state of the filter."""


def opened(opening: Op[object]) -> Op[None]:
    """Open a filter that has been stored; without an answer, its first call opens it."""
    with suppress(*TRANSIENT):
        yield from opening


def stored_of(operations: OnStored) -> Stored:
    """Return the state of a filter.  Raises `TypeError` for another system's bitmaps and module keys."""
    reading.check_readable(operations.stored)
    return operations.stored


def class_of(operations: OnStored) -> str:
    """Return the name of the public class of a filter, even for a subclass."""
    stored = stored_of(operations)
    return stored.called if isinstance(stored, Versioned) else ""


def save(stored: Stored, file: BinaryIO, progress: Progress | None) -> Op[None]:
    """Write a filter to a file."""
    source, writer = (yield from reading.read_parts(stored)), Writer(file)

    def write(_: Part, pieces: Sequence[tuple[int, bytes]]) -> Op[None]:
        yield Compute(partial(writer.put, b"".join([piece for _, piece in pieces])))

    yield Compute(partial(writer.put, source.saved.preamble()))
    yield from _transfer(source.saved, source.read, write, progress)
    yield Compute(writer.finish)


def restore(
    name: str, of: str, file: BinaryIO, *, encoded: int | None, progress: Progress | None
) -> Op[None]:
    """Restore the filter of a file under a name.

    :param of: the class that the filter must have.
    :param encoded: the encoding that its items must have; None for any.
    :raises ValueError: the file was truncated or changed.
    """
    reader: Reader = yield Compute(partial(Reader, file))
    saved = reader.saved
    if called(saved) != of:
        raise ValueError(f"the file holds a {called(saved)}, not a {of}: use {called(saved)}")
    encoding.check_encoding(f"the file for {name}", mergeable.whole(saved).encoding, encoded)

    def read(part: Part, run: range) -> Op[list[bytes]]:
        sizes = [min(PIECE_BYTES, part.num_bytes - first) for first in run]
        data: list[bytes] = yield Compute(lambda: list(map(reader.take, sizes)))
        return data

    yield from _store(name, saved, read, progress, check=reader.check_digest)


def copy(name: str, saved: Saved, pieces: Batches, progress: Progress | None) -> Op[None]:
    """Store a filter that another client reads under a name.

    :param pieces: the pieces of all parts, in order, those of one of their `byte_ranges` at a time.
    """

    def read(*_: object) -> Op[list[bytes]]:
        data: list[bytes] = yield Next(pieces)
        return data

    yield from _store(name, saved, read, progress)


def _store(
    name: str,
    saved: Saved,
    read: Read,
    progress: Progress | None,
    check: Callable[[], None] | None = None,
) -> Op[None]:
    """Store a filter under a free name; it appears in one step, after its bits and the `check`."""
    target = yield from restoring.target(name, saved)
    try:
        yield from target.begin()
        yield from _transfer(saved, read, target.write, progress)
        if check is not None:
            yield Compute(check)
        yield from target.publish()
    except Exception:
        with suppress(BloomError):
            yield from target.discard()
        raise


def _transfer(saved: Saved, read: Read, write: Write, progress: Progress | None) -> Op[None]:
    """Read and write the bits of a filter."""
    total, done = sum(part.num_bytes for part in saved.parts), 0
    for part in saved.parts:
        for run in reading.byte_ranges(part):
            data = yield from read(part, run)
            yield from write(part, list(zip(run, data, strict=True)))
            done += sum(map(len, data))
            if progress is not None:
                progress(done, total)
