"""The encoding of items, and the items of named work."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from bloomredis.arguments import shown
from bloomredis.bits import encoding
from bloomredis.bits.batch import Encoded
from bloomredis.stored.foreign.bitmap import ForeignLayout


@dataclass(frozen=True, slots=True)
class WorkItem:
    """The item of a call of a function with `once`: `add`, `contains` and `claim` take it as it is.

    The bytes to hash are `once`, NUL, the name of the work in UTF-8, NUL, and the encoded value of `key`;
    without a name the encoded value alone.
    """

    name: str | None
    value: Any


class Codec:
    """The encoder of a filter's items: `encode=`, another system's layout, or the library's default."""

    def __init__(self, encode: Callable[[Any], bytes] | None, foreign: ForeignLayout | None) -> None:
        self._custom = encode
        self._encoder: encoding.Encoder = foreign or encoding
        self._foreign = foreign
        self.is_plain = encode is None and foreign is None
        self.encode_all: Callable[[Sequence[object]], Encoded] = partial(
            encoding.in_rows, self.encode, at_once=None if encode else self._encoder.encode_all
        )
        """Encode the items of a batch; ASCII strings may stay strings.  An error names the row."""

    def __reduce__(self) -> tuple[object, ...]:
        return Codec, (self._custom, self._foreign)

    def encode(self, item: Any) -> bytes:
        """Return an item's bytes; raise TypeError or ValueError if it cannot be encoded."""
        if self.is_plain:
            kind = type(item)
            if kind is str and item.isascii():
                return item.encode()  # type: ignore[no-any-return]  # a str's
            if kind is bytes:
                return item  # type: ignore[no-any-return]  # bytes
        if isinstance(item, WorkItem):
            return self._encode_work(item.name, item.value)
        if self._custom is None:
            try:
                return self._encoder.encode(item)
            except TypeError:
                item = encoding.plain(item)
            return self._encoder.encode(item)  # outside, so that a mistake has one error
        encoded = self._custom(item)
        if not isinstance(encoded, bytes):
            raise TypeError(f"encode must return bytes, not {type(encoded).__name__} for {shown(item)}")
        return self._foreign.encode(encoded) if self._foreign else encoded

    def _encode_work(self, name: str | None, value: Any) -> bytes:
        if name is None:
            return self.encode(value)
        self.check_named()
        return b"once\0%b\0%b" % (name.encode(), self.encode(value))

    def check_named(self) -> None:
        """Raise `ValueError` if the layout of another system knows no names of work."""
        if self._foreign is not None:
            raise ValueError(
                f"a filter with {self._foreign!r} has the items of another system, which have no name: "
                "decorate with once(None), and use the function's bare items"
            )

    def encode_each(self, items: Sequence[object]) -> Encoded:
        """Encode the items of a small batch, each with `encode_for_batch`."""
        return encoding.in_rows(self.encode_for_batch, items)

    def encode_for_batch(self, item: object) -> str | bytes:
        """Encode one item, as str if it is ASCII and else as bytes, so that equal items compare equal."""
        if not self.is_plain:
            return self.encode(item)
        if type(item) is str and item.isascii():
            return item
        encoded = item if type(item) is bytes else self.encode(item)
        return encoded.decode() if encoded.isascii() else encoded
