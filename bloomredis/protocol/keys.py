"""The names of a filter's auxiliary keys."""

from __future__ import annotations


def as_bytes(encoded: str | bytes) -> bytes:
    """Return an encoded item as bytes; batches may hold ASCII items as str."""
    return encoded.encode() if isinstance(encoded, str) else encoded


def auxiliary_prefix(key: bytes) -> bytes:
    """Return the prefix of a filter's receipt, claim and layer keys, with the filter's own hash tag.

    No two filters share a prefix: `n` has `{n}:` and `{n}` has `{n}::`.
    """
    return key + b"::" if _hashed(key) != key else b"{" + key + b"}:"


def is_in_one_slot(key: bytes) -> bool:
    """Return whether a cluster keeps a filter's key and its auxiliary keys in one slot."""
    return _hashed(auxiliary_prefix(key)) == _hashed(key)


def _hashed(key: bytes) -> bytes:
    """Return the part of a key that decides its slot: the text in the first braces, or else the whole key."""
    opening = key.find(b"{")
    closing = key.find(b"}", opening + 1)
    return key[opening + 1 : closing] if 0 <= opening < closing - 1 else key
