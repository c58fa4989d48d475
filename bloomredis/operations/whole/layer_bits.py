"""The bits of a filter's layers, as a load reads them.

An older layer is never written again, so a load reads it once.  The copy of the newest layer may be out of
date; but bits are only ever set, so an item with all its bits in the copy is in the filter.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Final

from bloomredis.bits.arrays import NDArray, np
from bloomredis.bits.batch import BitAddresses
from bloomredis.bits.bitmap import Bits
from bloomredis.bits.blocked import Blocked
from bloomredis.bits.hashing import Digests
from bloomredis.bits.layout import Layout
from bloomredis.bits.limits import HEADER_BYTES
from bloomredis.protocol import forms
from bloomredis.protocol.calls import call, send_command
from bloomredis.protocol.gather import gather, unless_failed
from bloomredis.protocol.pieces import PIECE_BYTES, PIECES_AT_ONCE, READ
from bloomredis.protocol.replies import Refusal
from bloomredis.protocol.steps import Op
from bloomredis.stored import header
from bloomredis.stored.header import IDENTITY_BYTES
from bloomredis.stored.state.handle import Handle, Layer


@dataclass(frozen=True, slots=True)
class Hashed:
    """Items of a batch as digests; their bits are computed when they are needed."""

    layout: Layout
    digests: Digests

    def __len__(self) -> int:
        return len(self.digests)

    def addresses(self) -> BitAddresses:
        """Return the addresses of all bits."""
        return self.layout.hashed(self.digests).addresses()


class LayerBits:
    """The layers of a handle with their bits, and the room of the newest layer, in items."""

    def __init__(self, handle: Handle, layers: Sequence[Layer], bits: Sequence[Bits], room: int) -> None:
        self.handle = handle
        self.layer = layers[0]
        self.newest = bits[0].array
        self.older = dict(zip(layers[1:], bits[1:], strict=True))
        self.room = room

    def absent(self, items: Digests) -> NDArray[np.intp]:
        """Return the ascending indexes of the items that are in no older layer."""
        newest = self.layer.layout
        if self.older and isinstance(newest, Blocked):
            newest.hashed(items)  # for the most bits an item, so that no older layer hashes it again
        left = np.arange(len(items))
        layout: Layout | None = None
        for bits in self.older.values():
            if bits.layout != layout:
                layout = bits.layout
                addresses = layout.hashed(items.take(left)).addresses()
            missing = addresses.missing(bits.array)
            if not missing.size:
                return missing
            if missing.size < left.size:
                left, addresses = left[missing], addresses.take(missing)
        return left


def read(handle: Handle, layers: Sequence[Layer], before: LayerBits | None) -> Op[LayerBits]:
    """Read the layers of a handle, except for the older layers that `before` has."""
    known = {} if before is None else before.older
    newest, room = yield from _newest(layers[0])
    layers = [newest, *layers[1:]]
    bits = list[Bits]()
    for layer in layers:
        found = known.get(layer) or (yield from _bits(layer))
        bits.append(found)
    return LayerBits(handle, layers, bits, room)


def _newest(layer: Layer) -> Op[tuple[Layer, int]]:
    """Return a layer and the number of new items that it takes; 1 if it was replaced: a script will tell.

    A plain filter, which is its only layer, may have been marked as acknowledged.
    """
    with suppress(Refusal):
        stored = yield from send_command(("GETRANGE", layer.key, 0, HEADER_BYTES - 1), forms.data)
        identity = stored[:IDENTITY_BYTES]
        if identity == layer.identity or header.differ_by_mark(identity, layer.identity):
            head = header.parse(stored)
            return layer._replace(identity=identity), max(1, head.capacity - head.count)
    return layer, 1


RUN_BYTES: Final = PIECE_BYTES * PIECES_AT_ONCE
"""Bytes read in one round trip."""


def _bits(layer: Layer) -> Op[Bits]:
    """Read the bits of a layer; return no bits if it is gone or was replaced."""
    bits, get = Bits(layer.layout), partial(call, READ, [layer.key])
    size = len(bits.bytes)
    with suppress(Refusal):
        for run in range(0, size, RUN_BYTES):
            firsts = range(run, min(run + RUN_BYTES, size), PIECE_BYTES)
            pieces = yield from gather(get([layer.identity, first, PIECE_BYTES]) for first in firsts)
            for first, piece in zip(firsts, unless_failed(pieces), strict=True):
                bits.unite(first, piece)
    return bits
