"""The items of a filter in a key of the server's Bloom filter module, which hashes them itself.

Items are sent as MessagePack strings, one after another, which a script passes to the module without a table.

A filter of the module has no header.  In its place this library adds items to the filter:

* *markers*, which differ between generations; every call tests them in the same step.
* a *signature*, which all filters with markers share.
* the generation *in nibbles*, from which a later client reads the generation.
* if the filter's items are encoded, items that say so and name the encoding.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Final, NamedTuple

MADE, ADOPTED, FULL = b"made", b"adopted", b""
"""The signatures of filters that this library created, and of filters that another program had created.

`FULL` stands for a filter of another program without room for a signature.
"""

_PREFIX: Final = b"\0bloomr"
_CHANCE: Final = 8
"""At most one in 10^8 full filters of other programs contains all markers by chance."""

_SPELLED: Final = 4
"""At most one in 10^4 full filters contains, by chance, a nibble that was not added."""

_NIBBLES: Final = 16
_MOST_MARKERS, _MOST_COPIES = 48, 12  # reached at rates for which RedisBloom creates no filters
_HEADS: Final = [bytes([0xA0 + n]) if n < 32 else bytes([0xD9, n]) for n in range(256)]
_TEXT_HEADS: Final = [head.decode("latin-1") for head in _HEADS]


def _head(length: int) -> bytes:
    if length < 256:
        return _HEADS[length]
    return struct.pack(">BH", 0xDA, length) if length < 1 << 16 else struct.pack(">BI", 0xDB, length)


def packed(items: Sequence[str | bytes]) -> bytes:
    """Return items as MessagePack strings, one after another."""
    try:  # twice as fast, if all items are short ASCII strings
        heads = map(_TEXT_HEADS.__getitem__, map(len, items))
        return "".join(chain.from_iterable(zip(heads, items, strict=True))).encode("latin-1")  # type: ignore[arg-type]  # str
    except (IndexError, TypeError):
        encoded = [item.encode() if isinstance(item, str) else item for item in items]
        return b"".join(chain.from_iterable((_head(len(item)), item) for item in encoded))


@dataclass(frozen=True)
class ModuleItems:
    """The markers of one filter, and the packing of its items."""

    markers: tuple[bytes, ...]

    name = "module"
    item_bytes = 0
    cost = 1.2

    def pack_one(self, item: bytes) -> bytes:
        """Return one encoded item as a MessagePack string."""
        length = len(item)
        return (_HEADS[length] if length < 256 else _head(length)) + item

    def pack(self, items: Sequence[str | bytes]) -> bytes:
        """Return encoded items as MessagePack strings, one after another."""
        return packed(items)


class Marking(NamedTuple):
    """The numbers of items that this library adds to a filter; they follow from its error rate."""

    markers: int
    copies: int  # the number of items for each nibble of the generation

    def total(self, *, encoded: bool) -> int:
        """Return the number of all added items: markers, signatures, the encoding's items, and nibbles."""
        return (4 if encoded else 2) * self.markers + _NIBBLES * self.copies

    def signature(self, kind: bytes) -> list[bytes]:
        """Return the items that all filters with this signature share."""
        return [_PREFIX + kind + bytes([i]) for i in range(self.markers)]

    def encoding(self, number: int) -> list[bytes]:
        """Return the items which say that a filter's items are encoded, and by which encoding."""
        return [*self.signature(b"coded"), *self.signature(b"by" + digits_of(number))]

    def of(self, generation: bytes) -> tuple[bytes, ...]:
        """Return the markers of a generation."""
        return tuple(_PREFIX + generation + bytes([i]) for i in range(self.markers))

    def questions(self, encoding: int) -> list[bytes]:
        """Return the items to test for a generation: both signatures, an encoding, then every nibble."""
        nibbles = [
            _PREFIX + b"%x%x%d" % (place, digit, copy)
            for place in range(_NIBBLES)
            for digit in range(16)
            for copy in range(self.copies)
        ]
        return [*self.signature(MADE), *self.signature(ADOPTED), *self.encoding(encoding), *nibbles]

    def kind_of(self, answers: Sequence[int]) -> bytes | None:
        """Return a filter's signature, given its answers to `questions`; None if it has no signature."""
        if all(answers[: self.markers]):
            return MADE
        return ADOPTED if all(answers[self.markers : 2 * self.markers]) else None

    def encoded(self, answers: Sequence[int]) -> tuple[bool, bool]:
        """Return whether a filter's items are encoded, and whether by the encoding in `questions`."""
        coded, own = (all(answers[i * self.markers : (i + 1) * self.markers]) for i in (2, 3))
        return coded, coded and own

    def generations(self, answers: Sequence[int]) -> Iterator[bytes]:
        """Yield the generations that a filter may have, given its answers to `questions`."""
        found = [""]
        at = 4 * self.markers
        for _ in range(_NIBBLES):
            each = [answers[i : i + self.copies] for i in range(at, at + 16 * self.copies, self.copies)]
            digits = [f"{digit:x}" for digit, copies in enumerate(each) if all(copies)]
            found = [before + digit for before in found for digit in digits][:_MOST]
            at += 16 * self.copies
        return map(bytes.fromhex, found)


def digits_of(encoding: int) -> bytes:
    """Return the number of an encoding in the scripts' form; b"" for none."""
    return b"%08x" % encoding if encoding else b""


_MOST: Final = 1024
"""The most generations to consider; at an error rate of 1e-2 there is one, or by chance there are two."""


def as_flags(answers: str | bytes) -> Sequence[int]:
    """Return the answers in a reply as numbers, 1 or 0."""
    return answers.encode() if isinstance(answers, str) else answers


def marking(error_rate: float) -> Marking:
    """Return the numbers of items that this library adds to a filter with this error rate."""
    digits = -math.log10(min(error_rate, 0.9))
    markers, copies = math.ceil(_CHANCE / digits), math.ceil(_SPELLED / digits)
    return Marking(max(2, min(_MOST_MARKERS, markers)), min(_MOST_COPIES, copies))
