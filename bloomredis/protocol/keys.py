"""Names of a filter's auxiliary keys."""

from __future__ import annotations


def as_bytes(encoded: str | bytes) -> bytes:
    """Return an encoded item as bytes; batches may keep ASCII items as str."""
    return encoded.encode() if isinstance(encoded, str) else encoded


def auxiliary_prefix(key: bytes) -> bytes:
    """Return the prefix of a filter's receipt, claim and layer keys: the same hash tag, so the same slot.

    No two names share it: that of `n` is `{n}:`, that of `{n}` is `{n}::`.
    """
    opening = key.find(b"{")
    closing = key.find(b"}", opening + 1)
    tagged = 0 <= opening < closing - 1
    return key + b"::" if tagged else b"{" + key + b"}:"
