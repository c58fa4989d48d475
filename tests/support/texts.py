"""The texts of scripts, for tests that call them without a filter's object."""

from __future__ import annotations

from bloomredis.protocol import scripts

_BLOCKED, _COUNTING = 2, 4
_LAYER_RECORD = 16
"""Bytes before the layer record in the identity of a filter of layers."""


def variant_of(identity: bytes) -> scripts.Variant:
    """Return the variant of the filter with this identity."""
    if identity.startswith(b"layers\2"):
        return "layers", "blocks" if identity[_LAYER_RECORD + 7 :][:1] >= bytes([_BLOCKED]) else "bits"
    if identity.startswith(b"layers\1"):
        return "bitmaps", "layers", "bits"
    if identity.startswith(b"bitmap"):
        return "bitmap", "bits"
    if identity[10:11] == bytes([_COUNTING]):
        return "one", "counters"
    return "one", "blocks" if identity[7:8] >= bytes([_BLOCKED]) else "bits"


def text_of(verb: str, identity: object) -> str:
    """Return the text of a script for the filter with this identity, or the first variant."""
    variant = variant_of(identity) if isinstance(identity, bytes) else ()
    known = (each for each in scripts.variants(verb) if variant[: len(each)] == each)
    return scripts.load_script(verb, variant=next(known, scripts.variants(verb)[0])).text
