"""Items as bytes: the types that a caller may pass, and the bytes that are hashed for each."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, cast

Item = str | bytes | bytearray | memoryview | int


class Encoder(Protocol):
    """Conversion of items to the bytes that are hashed: this module, or another system's layout."""

    def encode(self, item: Item) -> bytes:
        """Return the bytes that are hashed for an item; raise if its type or value is not accepted."""

    def encode_all(self, items: Sequence[Item]) -> Sequence[str | bytes]:
        """Return the encoded items, as bytes or as ASCII strings; raise as `encode` does."""


def encode(item: Item) -> bytes:
    """Return the bytes that are hashed for `item`: UTF-8 of a str, decimal digits of an int.

    Raises `TypeError` for every other type, and `ValueError` for a str that UTF-8 cannot encode.
    """
    if isinstance(item, str):
        try:
            return item.encode()
        except UnicodeEncodeError as error:
            raise ValueError(
                f"item {item!r} is not valid Unicode ({error.reason}); pass bytes, or give the filter encode="
            ) from None
    if isinstance(item, bytes | bytearray | memoryview):
        return bytes(item)
    if isinstance(item, int) and not isinstance(item, bool):
        return b"%d" % item
    raise TypeError(
        f"an item is str, bytes or int, not {type(item).__name__}; convert it, or give the filter encode="
    )


def encode_all(items: Sequence[Item]) -> Sequence[str | bytes]:
    """Return `items` in a form that `digests` takes; raise as `encode` does.

    Bytes and ASCII strings stay as they are, which is several times faster.  Other strings must not
    reach mmh3: 5.3 crashes the process on an unpaired surrogate.
    """
    try:
        plain = "".join(cast("Sequence[str]", items)).isascii()
    except TypeError:
        types = set(map(type, items))
        plain = types == {bytes}
        if types == {int}:
            return list(map(str, items))
    return cast("Sequence[str | bytes]", items) if plain else [encode(item) for item in items]
