"""Items as bytes: the types that a caller may pass, and the bytes that are hashed for each."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from hashlib import blake2b
from numbers import Integral
from typing import Any, Final, Protocol, cast

import numpy as np

from bloomredis.arguments import shown

_SECRET_BYTES: Final = 16
Item = str | bytes | bytearray | memoryview | int | np.integer[Any]


class RowError(Exception):
    """The refusal of an item of a batch."""

    def __init__(self, row: int, reason: str) -> None:
        super().__init__(row, reason)
        self.row = row
        self.reason = reason

    def __str__(self) -> str:
        return f"row {self.row}: {self.reason}"


@contextmanager
def rows_from(first: int) -> Iterator[None]:
    """Count the rows of a refusal from the first of all items, not of a batch."""
    try:
        yield
    except RowError as error:
        error.row += first
        raise


class RowTypeError(RowError, TypeError):
    """An item of a batch has a type that no item has."""


class RowValueError(RowError, ValueError):
    """An item of a batch has a value that no item has."""


def in_rows(
    encode: Callable[[Any], str | bytes],
    items: Sequence[Any],
    at_once: Callable[[Sequence[Any]], Sequence[str | bytes]] | None = None,
) -> Sequence[str | bytes]:
    """Return the encoded items; the error for one that is refused has its row.

    :param at_once: the encoding of a batch, which is faster and does not tell the row.
    """
    if at_once is not None:
        with suppress(TypeError, ValueError):
            return at_once(items)
    encoded: list[str | bytes] = []
    try:
        for item in items:
            encoded.append(encode(item))  # noqa: PERF401 - its length is the row of an error
    except (TypeError, ValueError) as error:
        kind = RowTypeError if isinstance(error, TypeError) else RowValueError
        raise kind(len(encoded), str(error)) from error
    return encoded


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
                f"item {shown(item)} is not valid Unicode ({error.reason}); "
                "pass bytes, or give the filter encode="
            ) from None
    if isinstance(item, bytes | bytearray | memoryview):
        return bytes(item)
    if isinstance(item, int) and not isinstance(item, bool):
        return b"%d" % item
    if _is_null(item):
        raise TypeError(
            f"an item is str, bytes or int, not {type(item).__name__}, "
            f"a null ({shown(item)}); leave nulls out"
        )
    raise TypeError(
        f"an item is str, bytes or int, not {type(item).__name__}; convert it, or give the filter encode="
    )


def plain(item: Any) -> Any:
    """Return what a scalar of numpy or Arrow holds; any other item as it is."""
    if isinstance(item, Integral) and not isinstance(item, int):
        return int(item)
    as_py = getattr(item, "as_py", None)
    return as_py() if callable(as_py) else item


def _is_null(item: object) -> bool:
    """True for None, NaN and the nulls of pandas."""
    is_nan = isinstance(item, float) and math.isnan(item)
    return item is None or is_nan or type(item).__name__ in {"NAType", "NaTType"}


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


OWN: Final = 1
"""The number of an `encode=` that is a function of the program's own."""


def number_of(encode: Callable[[Any], bytes] | None) -> int | None:
    """Return what a filter's header says of the encoding of its items; None for one that fits any filter.

    It is 0 without an `encode=`, `OWN` for a function, which cannot be told from another one, and a
    fingerprint of the secret for `keyed`.
    """
    if encode is None:
        return 0
    return encode.fingerprint if isinstance(encode, _Keyed | Unknown) else OWN


class _Keyed:
    """Keyed BLAKE2b of an item's bytes."""

    def __init__(self, key: bytes) -> None:
        self._key = key
        digest = blake2b(key, digest_size=4, person=b"fingerprint").digest()
        self.fingerprint = max(int.from_bytes(digest), OWN + 1)

    def __call__(self, item: Item) -> bytes:
        return blake2b(encode(plain(item)), digest_size=16, key=self._key).digest()


class Unknown:
    """The encoding of a filter whose program is another one: whatever needs no item works."""

    fingerprint = None

    def __call__(self, item: object) -> bytes:
        raise ValueError(
            f"the items of this filter are encoded by the program that uses it (encode=), and {shown(item)} "
            "cannot be encoded here: add and test items in that program"
        )


def keyed(secret: bytes | str) -> Callable[[Item], bytes]:
    """Return an `encode=` for items that an attacker may choose.

    MurmurHash3 has no secret: whoever can choose items can find some that share all their bits with another
    one, and so have it called "already there".  With this, items are first hashed by BLAKE2b with a key
    (RFC 7693), of which nobody can predict anything without the secret.  It costs about 1 µs an item, and
    every client of the filter needs the same secret.

    :param secret: at least 16 bytes; as text it is encoded as UTF-8.
    :raises ValueError, TypeError: for a secret that is too short, or of another type.
    """
    if isinstance(secret, str):
        secret = secret.encode()
    if not isinstance(secret, bytes):
        raise TypeError(f"secret must be bytes or str, not {type(secret).__name__}")
    if len(secret) < _SECRET_BYTES:
        raise ValueError(f"secret must have at least {_SECRET_BYTES} bytes, not {len(secret)}")
    return _Keyed(blake2b(secret, digest_size=64, person=b"bloomredis").digest())
