"""A copy of a filter's bits in this process, which answers without the server.

Bits are only ever set, so a True is right as long as the filter's generation stands, however old the copy
is; a False may be out of date.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any, Final, Generic, Protocol, Self, cast

from bloomredis.arguments import listed, shown
from bloomredis.bits.batch import Encoded
from bloomredis.bits.bitmap import Bits
from bloomredis.bits.encoding import Encoder, number_of
from bloomredis.errors import FilterMismatchError
from bloomredis.operations import info, local_file
from bloomredis.operations.info import FilterInfo
from bloomredis.operations.options import I
from bloomredis.operations.verbs import Codec
from bloomredis.protocol import scripts
from bloomredis.protocol.steps import Op
from bloomredis.stored import mergeable
from bloomredis.stored.base import Stored
from bloomredis.stored.handle import Description, LayoutChanged

READ: Final = scripts.load("read")
PIECE_BYTES: Final = 128 << 10
"""Bytes of a filter that one script reads: some 0.1 ms."""


class Answers(Protocol):
    """Bits that answer for encoded items: of one filter, of layers, or of shards."""

    def has(self, encoded: bytes) -> bool:
        """Return True if an item is in the filter."""

    def has_many(self, encoded: Encoded) -> Any:
        """Return the answer for each item, as an array."""


class LocalFilter(Generic[I]):
    """A read-only copy of a filter, as it was when `snapshot()` read it, or when it was saved.

    It takes as much memory as the filter's bits, or none but the pages that are asked of an open file, and
    never asks the server.  A True was right while the filter stood; a False may be out of date.
    """

    def __init__(self, name: str, answers: Answers, about: info.Parts, encoder: Encoder) -> None:
        self.name = name
        self._answers = answers
        self.about = about  # not part of the public class, like `answers`
        self._encoder: Any = encoder  # of the items that the filter has

    @classmethod
    def open(
        cls,
        path: str | os.PathLike[str],
        *,
        encode: Callable[[I], bytes] | None = None,
        verify: bool = True,
    ) -> Self:
        """Return the filter of a file that `save` wrote; no server is needed, nor memory for the bits.

        The file is mapped into memory, which processes share.  Leave it unchanged while it is open: a process
        whose mapped file is cut is ended by SIGBUS.  Of a
        filter that counts, a bit for each counter is kept in memory, a quarter of the file.

        :param encode: as in the constructor; it has to be that of the filter that was saved.
        :param verify: read the whole file and check it, at some 1 GB a second; without, only its beginning.
        :raises ValueError: it is no saved filter, or was cut or changed.
        :raises FilterMismatchError: it was made with another `encode`.
        """
        opened = local_file.opened(path, number_of(encode), verify=verify)
        return cls(os.fspath(path), opened.answers, opened.about, cast("Encoder", Codec(encode, None)))

    @property
    def bits(self) -> bytes:
        """The filter's bits as the server had them, without the header.

        :raises TypeError: it is in layers or shards, or it counts.
        """
        if not isinstance(self._answers, Bits) or self.about.is_counting:
            raise TypeError(f"{self.name!r} has not one string of bits")
        return bytes(self._answers.bytes)

    def contains(self, item: I) -> bool:
        """Return whether an item was in the filter."""
        return self._answers.has(self._encoder.encode(item))

    def __contains__(self, item: I) -> bool:
        return self.contains(item)

    def contains_many(self, items: Iterable[I]) -> list[bool]:
        """Return for each item, in order, whether it was in the filter."""
        answers: list[bool] = self._answers.has_many(self._encoder.encode_all(listed(items))).tolist()
        return answers

    def info(self) -> FilterInfo:
        """Return the filter's parameters and how full it is."""
        return self.about.info(self.name)

    def merge(self, other: LocalFilter[I]) -> None:
        """Add what another copy has: filters that were built apart become one.

        Both are of `BloomFilter`, with the same parameters; the bits are in memory afterwards, also those of
        an open file.  The count is an estimate from then on.

        :raises FilterMismatchError: their parameters differ.
        :raises TypeError: one is no copy of a `BloomFilter`.
        """
        if not isinstance(other, LocalFilter):
            raise TypeError(f"other must be a LocalFilter, not {type(other).__name__} {shown(other)}")
        if not (isinstance(self._answers, Bits) and isinstance(other._answers, Bits)):
            raise TypeError(
                f"{self.name!r} and {other.name!r} cannot be merged here, being in layers or in shards: "
                "restore them, and merge what can be merged on the server"
            )
        ((found, _),), ((theirs, _),) = self.about.parts, other.about.parts
        if found.header.generation and theirs.header.generation:
            mergeable.check(self.name, self.about.saved, other.name, other.about.saved)
        elif self._answers.layout != other._answers.layout:
            raise FilterMismatchError(f"{self.name!r} and {other.name!r} have different layouts")
        bits = Bits(self._answers.layout, bytearray(self._answers.bytes))
        bits.unite(0, other._answers.bytes)
        self._answers, self.about = bits, info.Parts([(info.united(found, theirs, bits), bits)])

    def __repr__(self) -> str:
        return f"<LocalFilter of {self.name!r}: {self.about.size_bytes} bytes>"


def snapshot(stored: Stored, encoder: Encoder) -> Op[LocalFilter[Any]]:
    """Copy a filter into this process.

    Reading costs the server some 1 ms a megabyte, in pieces of 0.1 ms; items added meanwhile may be in.
    """
    if not stored.is_one_bitmap:
        raise TypeError(
            f"{stored.name!r} is several bitmaps, or none that can be read, so there is no copy of it"
        )
    while True:
        (found,) = yield from stored.current()
        handle = yield from stored.acquire()
        bits = Bits(handle.bitmap)
        with suppress(LayoutChanged):
            for first in range(0, len(bits.bytes), PIECE_BYTES):
                bits.unite(first, (yield from stored.run(READ, handle, (first, PIECE_BYTES), reads=True)))
            return _local(stored.name, found, bits, encoder)


def _local(name: str, found: Description, bits: Bits, encoder: Encoder) -> LocalFilter[Any]:
    return LocalFilter(name, bits, info.Parts([(found, bits)]), encoder)
