"""The encoding of items."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from bloomredis.arguments import shown
from bloomredis.bits import encoding
from bloomredis.bits.batch import Encoded
from bloomredis.stored.foreign.bitmap import ForeignLayout


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
        """Encode the items of a batch; ASCII strings may stay strings.  Raises `RowError`."""

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
        if self._custom is None:
            try:
                return self._encoder.encode(item)
            except TypeError:
                return self._encoder.encode(encoding.plain(item))
        encoded = self._custom(item)
        if not isinstance(encoded, bytes):
            raise TypeError(f"encode must return bytes, not {type(encoded).__name__} for {shown(item)}")
        return self._foreign.encode(encoded) if self._foreign else encoded

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
