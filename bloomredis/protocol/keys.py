"""Names of the keys beside a filter's own."""

from __future__ import annotations


def as_bytes(encoded: str | bytes) -> bytes:
    """Return what stands for an item, of which text in ASCII stands for itself."""
    return encoded.encode() if isinstance(encoded, str) else encoded


def beside(key: bytes) -> bytes:
    """Return the beginning of the names of a filter's other keys, which live in the same hash slot."""
    opening = key.find(b"{")
    closing = key.find(b"}", opening + 1)
    tagged = 0 <= opening < closing - 1
    return key + b":" if tagged else b"{" + key + b"}:"
