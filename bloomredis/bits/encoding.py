"""The encoding of items: the types that a caller may pass, and the bytes to hash for each type."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from hashlib import blake2b
from numbers import Integral
from typing import Any, Final, Protocol, Union, cast

from bloomredis.arguments import shown
from bloomredis.bits.arrays import np

_SECRET_BYTES: Final = 16
Item = Union[str, bytes, bytearray, memoryview, int, "np.integer[Any]"]


@contextmanager
def rows_from(first: int, rows: Sequence[int] | None = None) -> Iterator[None]:
    """Let the error for a wrong item of a batch name its row among all items.

    :param first: the number of items before the batch.
    :param rows: the rows of the batch that were encoded; None for all.
    """
    try:
        yield
    except (TypeError, ValueError) as error:
        told = vars(error)
        if "row" in told:
            _tell_row(error, first + (rows[told["row"]] if rows else told["row"]), told["reason"])
        raise


def _tell_row(error: Exception, row: int, reason: str) -> None:
    """Let an error name the row of the wrong item."""
    vars(error).update(row=row, reason=reason)
    error.args = (f"row {row}: {reason}",)


def in_rows(
    encode: Callable[[Any], str | bytes],
    items: Sequence[Any],
    at_once: Callable[[Sequence[Any]], Sequence[str | bytes]] | None = None,
) -> Sequence[str | bytes]:
    """Return the encoded items; raise an error with the row of the first item that is not accepted.

    :param at_once: encodes a whole batch, which is faster; but its error does not tell the row.
    """
    if at_once is not None:
        with suppress(TypeError, ValueError):
            return at_once(items)
    encoded: list[str | bytes] = []
    try:
        for item in items:
            encoded.append(encode(item))  # noqa: PERF401 - the list's length is the row of an error
    except (TypeError, ValueError) as error:
        wrong = TypeError() if isinstance(error, TypeError) else ValueError()
        _tell_row(wrong, len(encoded), str(error))
        raise wrong from error
    return encoded


class Encoder(Protocol):
    """An object that encodes items for hashing: this module, or the layout of another system."""

    def encode(self, item: Item) -> bytes:
        """Return the bytes to hash for an item; raise if its type or value is not accepted."""

    def encode_all(self, items: Sequence[Item]) -> Sequence[str | bytes]:
        """Return the encoded items, as bytes or as ASCII strings; raise as `encode` does."""


def encode(item: Item) -> bytes:
    """Return the bytes to hash for `item`: UTF-8 of a str, decimal digits of an int, bytes as they are.

    :raises TypeError: the item has another type.
    :raises ValueError: the item is a str that UTF-8 cannot encode.
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
        try:
            return b"%d" % item
        except ValueError:
            most = sys.get_int_max_str_digits()
            raise ValueError(
                f"item has more than {most} decimal digits, which Python does not write; pass bytes"
            ) from None
    if is_null(item):
        raise TypeError(
            f"an item is str, bytes or int, not {type(item).__name__}, "
            f"a null ({shown(item)}); leave nulls out"
        )
    raise TypeError(
        f"an item is str, bytes or int, not {type(item).__name__}; convert it, or give the filter encode="
    )


def plain(item: Any) -> Any:
    """Return the Python value of a scalar of numpy or Arrow; return any other item as it is."""
    if isinstance(item, Integral) and not isinstance(item, int):
        return int(item)
    as_py = getattr(item, "as_py", None)
    return as_py() if callable(as_py) else item


def is_null(item: object) -> bool:
    """Return True for None, NaN and the nulls of pandas."""
    is_nan = isinstance(item, float) and math.isnan(item)
    return item is None or is_nan or type(item).__name__ in {"NAType", "NaTType"}


def encode_all(items: Sequence[Item]) -> Sequence[str | bytes]:
    """Return `items` in a form that `digests` takes; raise as `encode` does.

    Bytes and ASCII strings are returned as they are, which is several times faster.  Other strings must not
    reach mmh3, since mmh3 5.3 crashes the process on an unpaired surrogate.
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
"""The number of an `encode=` that is a program's own function."""


def number_of(encode: Callable[[Any], bytes] | None) -> int | None:
    """Return the number of an encoding in a filter's header; None if the encoding fits any filter.

    The number is 0 without `encode=`, a fingerprint of the secret for `keyed`, and `OWN` for any other
    function, since functions cannot be told apart.
    """
    if encode is None:
        return 0
    return encode.fingerprint if isinstance(encode, _Keyed | Unknown) else OWN


class _Keyed:
    """The keyed BLAKE2b hash of an item's bytes."""

    def __init__(self, key: bytes) -> None:
        self._key = key
        digest = blake2b(key, digest_size=4, person=b"fingerprint").digest()
        self.fingerprint = max(int.from_bytes(digest), OWN + 1)

    def __call__(self, item: Item) -> bytes:
        return blake2b(encode(plain(item)), digest_size=16, key=self._key).digest()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Keyed) and self._key == other._key

    def __hash__(self) -> int:
        return self.fingerprint


class Unknown:
    """An encoding that this program does not have; only calls that take no items work."""

    fingerprint = None

    def __call__(self, item: object) -> bytes:
        raise ValueError(
            f"the items of this filter are encoded by the program that uses it (encode=), and {shown(item)} "
            "cannot be encoded here: add and test items in that program"
        )


def keyed(secret: bytes | str) -> Callable[[Item], bytes]:
    """Return an `encode=` for items that an attacker may choose.

    MurmurHash3 has no secret.  An attacker who chooses items can add items that set all bits of somebody
    else's item, so that the filter reports that item as "already there".  `keyed` first hashes items by
    BLAKE2b with a key (RFC 7693).  Nobody can predict this hash without the secret.  Every client
    of the filter needs the same secret.  The hash takes about 1 µs an item.

    :param secret: at least 16 bytes; a str is encoded as UTF-8.
    :raises ValueError: the secret is too short.
    :raises TypeError: the secret has another type.
    """
    if isinstance(secret, str):
        secret = secret.encode()
    if not isinstance(secret, bytes):
        raise TypeError(f"secret must be bytes or str, not {type(secret).__name__}")
    if len(secret) < _SECRET_BYTES:
        raise ValueError(f"secret must have at least {_SECRET_BYTES} bytes, not {len(secret)}")
    return _Keyed(blake2b(secret, digest_size=64, person=b"bloomredis").digest())
