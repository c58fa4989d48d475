"""Files of saved filters, read and written as streams, with their checksum."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import sha256
from io import TextIOBase
from pathlib import Path
from typing import BinaryIO, Final, NoReturn, cast

from bloomredis.arguments import shown
from bloomredis.operations.options import File
from bloomredis.stored.saved import format as saved

_CHUNK_BYTES: Final = 1 << 20


@contextmanager
def written(file: File) -> Iterator[BinaryIO]:
    """Open a file to be written; a path is written to a temporary file, and replaced at the end.

    A path that is no regular file, such as a pipe or a device, is written directly.
    """
    if not isinstance(file, str | os.PathLike):
        _check(file, "write")
        yield file
        return
    path = checked_path(file)
    if path.exists() and not path.is_file():
        with path.open("wb") as opened:
            yield opened
        return
    path = path.resolve()  # a symbolic link stays; its target is replaced
    beside = path.with_name(f".{os.urandom(8).hex()}.part")
    try:
        with beside.open("xb") as opened:
            if path.exists():
                beside.chmod(stat.S_IMODE(path.stat().st_mode))
            yield opened
            opened.flush()
            os.fsync(opened.fileno())
        beside.replace(path)
    except BaseException as error:
        beside.unlink(missing_ok=True)
        if isinstance(error, OSError) and error.filename == str(beside):
            raise type(error)(error.errno, error.strerror, str(file)) from None
        raise


@contextmanager
def read(file: File) -> Iterator[BinaryIO]:
    """Open a file to be read."""
    if not isinstance(file, str | os.PathLike):
        _check(file, "read")
        yield file
        return
    with checked_path(file).open("rb") as opened:
        yield cast("BinaryIO", SavedFile(opened))  # by `__getattr__`


class SavedFile:
    """A binary file opened from a path, whose end can be checked: nothing follows the saved filter.

    An open file of the caller may be a connection, on which more data follows, or the other side waits for an
    answer.
    """

    def __init__(self, file: BinaryIO) -> None:
        self._file = file

    def read(self, size: int) -> bytes:
        """Return up to `size` bytes; none at the end of the file."""
        return self._file.read(size)

    def __getattr__(self, name: str) -> object:
        return getattr(self._file, name)


class Writer:
    """A writer of a saved filter."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._digest = sha256()

    def put(self, data: bytes) -> None:
        """Write bytes, and add them to the checksum."""
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
    """A reader of a saved filter; `saved` has all of it except the bits.

    A seekable file is read twice: it is checked completely before anything is returned.
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
        """Return the next `size` bytes of the file."""
        data = self._exactly(size)
        self._digest.update(data)
        return data

    def check_digest(self) -> None:
        """Raise `ValueError` if the bytes taken so far do not have the file's checksum."""
        if self._digest.digest() != self._exactly(saved.DIGEST_BYTES):
            self._refuse("its checksum does not match, so it was changed")
        if isinstance(self._file, SavedFile):
            self._check_end()

    def _check_all(self) -> None:
        left = sum(part.num_bytes for part in self.saved.parts)
        while left:
            left -= len(self.take(min(left, _CHUNK_BYTES)))
        self.check_digest()
        self._check_end()

    def _check_end(self) -> None:
        if self._file.read(1):
            self._refuse("it has data after its checksum")

    def _parsed(self) -> saved.Saved:
        head = self.take(saved.HEAD_BYTES)
        with self._refusing():
            _, more = saved.sizes(head)
        rest = self.take(more)
        with self._refusing():
            return saved.parse(head, rest)

    @contextmanager
    def _refusing(self) -> Iterator[None]:
        try:
            yield
        except ValueError as error:
            self._refuse(str(error))

    def _exactly(self, size: int) -> bytes:
        data = bytearray()
        while len(data) < size:
            chunk = self._file.read(size - len(data))
            if not chunk:
                self._refuse("it ends too early, so it was truncated")
            data += chunk
        return bytes(data)

    def _refuse(self, why: str) -> NoReturn:
        what = shown(self._name) if isinstance(self._name, str) else "the file"
        raise ValueError(f"{what} cannot be used: {why}") from None


def checked_path(file: str | os.PathLike[str]) -> Path:
    """Return the path of a file; raise `ValueError` for a directory."""
    path = Path(file)
    if path.is_dir():
        raise ValueError(f"file must be a file, and {shown(str(path))} is a directory: give a path in it")
    return path


def _check(file: object, verb: str) -> None:
    if isinstance(file, TextIOBase) or not callable(getattr(file, verb, None)):
        raise TypeError(f"file must be a path or a binary file, not {type(file).__name__} {shown(file)}")
