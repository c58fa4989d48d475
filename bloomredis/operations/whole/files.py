"""Files of saved filters, read and written as they come, with their checksum."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from typing import BinaryIO, Final, NoReturn, cast

from bloomredis.arguments import shown
from bloomredis.stored.saved import format as saved

File = str | os.PathLike[str] | BinaryIO
"""A path, or a binary file that is open."""

_CHUNK_BYTES: Final = 1 << 20


@contextmanager
def written(file: File) -> Iterator[BinaryIO]:
    """Open a file to be written; that of a path is another one until the end, and then replaces it.

    What is no regular file, as a pipe or a device, is written as it is.
    """
    if not isinstance(file, str | os.PathLike):
        _check(file, "write")
        yield file
        return
    path = Path(file)
    if path.exists() and not path.is_file():
        with path.open("wb") as opened:
            yield opened
        return
    path = path.resolve()  # of a symbolic link what it leads to
    beside = path.with_name(f".{os.urandom(8).hex()}.part")
    try:
        with beside.open("xb") as opened:
            if path.exists():
                beside.chmod(stat.S_IMODE(path.stat().st_mode))
            yield opened
            opened.flush()
            os.fsync(opened.fileno())
        beside.replace(path)
    except BaseException:
        beside.unlink(missing_ok=True)
        raise


@contextmanager
def read(file: File) -> Iterator[BinaryIO]:
    """Open a file to be read."""
    if not isinstance(file, str | os.PathLike):
        _check(file, "read")
        yield file
        return
    with Path(file).open("rb") as opened:
        yield cast("BinaryIO", Whole(opened))  # by `__getattr__`


class Whole:
    """A binary file that has a saved filter and nothing behind it, and whose end comes without an answer.

    An open file that a caller gives may be a connection, on which the other side waits or goes on.
    """

    def __init__(self, file: BinaryIO) -> None:
        self._file = file

    def read(self, size: int) -> bytes:
        """Return up to so many bytes, none at the end."""
        return self._file.read(size)

    def __getattr__(self, name: str) -> object:
        return getattr(self._file, name)


class Writer:
    """Writes a saved filter."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._digest = sha256()

    def put(self, data: bytes) -> None:
        """Write bytes behind those before."""
        self._digest.update(data)
        self._write(data)

    def finish(self) -> None:
        """Write the checksum."""
        self._write(self._digest.digest())
        self._file.flush()

    def _write(self, data: bytes) -> None:
        rest = memoryview(data)
        while rest:
            count = self._file.write(rest)
            if count is None:
                raise BlockingIOError("the file is full; it must not be non-blocking")
            rest = rest[count:]


class Reader:
    """Reads a saved filter; `saved` is all of it but the bits.

    One that can be read twice is checked as a whole before anything is returned.
    """

    def __init__(self, file: BinaryIO, *, verify: bool = True) -> None:
        self._file = file
        self._name = getattr(file, "name", None)
        self._digest = sha256()
        begin = file.tell() if verify and file.seekable() else None
        self.saved = self._parsed()
        if begin is not None:
            self._check_all()
            file.seek(begin)
            self._digest = sha256()
            self._parsed()

    def take(self, size: int) -> bytes:
        """Return so many bytes of the file, in order."""
        data = self._exactly(size)
        self._digest.update(data)
        return data

    def check(self) -> None:
        """Raise `ValueError` if the bytes that were taken are not those that were saved."""
        if self._digest.digest() != self._exactly(saved.DIGEST_BYTES):
            self._refuse("its checksum is another one, so it was changed")
        if isinstance(self._file, Whole):
            self._check_end()

    def _check_all(self) -> None:
        left = sum(part.num_bytes for part in self.saved.parts)
        while left:
            left -= len(self.take(min(left, _CHUNK_BYTES)))
        self.check()
        self._check_end()

    def _check_end(self) -> None:
        if self._file.read(1):
            self._refuse("it goes on behind its checksum")

    def _parsed(self) -> saved.Saved:
        head = self.take(saved.HEAD_BYTES)
        try:
            _, more = saved.sizes(head)
            return saved.parse(head, self.take(more))
        except ValueError as error:
            self._refuse(str(error))

    def _exactly(self, size: int) -> bytes:
        data = bytearray()
        while len(data) < size:
            chunk = self._file.read(size - len(data))
            if not chunk:
                self._refuse("it ends too early, so it was cut")
            data += chunk
        return bytes(data)

    def _refuse(self, why: str) -> NoReturn:
        what = shown(self._name) if isinstance(self._name, str) else "the file"
        raise ValueError(f"{what} cannot be used: {why}") from None


def _check(file: object, verb: str) -> None:
    if not callable(getattr(file, verb, None)):
        raise TypeError(f"file must be a path or a binary file, not {type(file).__name__} {shown(file)}")
