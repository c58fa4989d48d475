"""Restoring a saved filter under a new name: it appears in one step, or not at all."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Final

from bloomredis.bits.limits import HEADER_BYTES
from bloomredis.protocol import forms, scripts
from bloomredis.protocol.calls import call, send_command
from bloomredis.protocol.steps import Op
from bloomredis.stored.layers.layers import StoredLayers
from bloomredis.stored.layers.record import LayerRecord, RotatingRecord
from bloomredis.stored.saved.format import Part, Saved
from bloomredis.stored.saved.shards import RestoredShards
from bloomredis.stored.saved.writing import Writing
from bloomredis.stored.state.base import taken

_TIME: Final = scripts.load_script("time", forms.digits)

Pieces = Sequence[tuple[int, bytes]]
"""Pieces of a part's bits, each with the index of its first byte."""


class _OneSlot(ABC):
    """A filter whose keys all lie in one slot, so that one script can rename them at once.

    :param saved: has the new filter's generation.
    """

    def __init__(self, name: str, saved: Saved) -> None:
        self.name = name
        self._saved = saved
        self._writing = Writing(name, name.encode())
        self._heads = {part.number: part.header for part in saved.parts}
        self._begun: set[int] = set()

    @abstractmethod
    def _key(self, number: int) -> bytes:
        """Return the key of a part."""

    def begin(self) -> Op[None]:
        """Raise `FilterMismatchError` if the name is in use."""
        if (yield from send_command(("EXISTS", self.name.encode()), forms.integer)):
            raise taken(self.name)

    def write(self, part: Part, pieces: Pieces) -> Op[None]:
        """Write pieces of a part."""
        key, head = self._key(part.number), self._heads[part.number]
        if part.number not in self._begun:
            self._begun.add(part.number)
            yield from self._writing.allocate(key, head.size_bytes)
            yield from self._writing.write(key, head.size_bytes, [(0, head.pack())])
        own = [(HEADER_BYTES + first, piece) for first, piece in pieces]
        yield from self._writing.write(key, head.size_bytes, own)
        if self._writing.is_renewal_due():
            yield from self._writing.touch()

    def discard(self) -> Op[None]:
        """Delete the written parts."""
        yield from self._writing.discard()


class OneKey(_OneSlot):
    """A filter in one key."""

    def _key(self, number: int) -> bytes:
        return self.name.encode()

    def publish(self) -> Op[None]:
        """Make the filter appear; raise `FilterMismatchError` if the name is in use by now."""
        yield from self._writing.publish({self._key(0): self._saved.ttl})


class Layers(_OneSlot):
    """A filter in several layers."""

    def __init__(self, name: str, saved: Saved, record: LayerRecord) -> None:
        super().__init__(name, saved)
        self._record = record
        self._stored = StoredLayers(
            name, made=type(record), new=None, layout=None, ttl=0, on_lost="raise", wait=None
        )

    def _key(self, number: int) -> bytes:
        return self._stored.layer_key(number)

    def publish(self) -> Op[None]:
        """Make the filter appear, without the layers that a rotating filter has forgotten by now."""
        yield from self._stored.delete_orphans()
        now = yield from call(_TIME, [self.name.encode()], [])
        left = [_left(self._record, began, now, self._saved.ttl) for began in reversed(self._record.began)]
        lives = {n: ttl for n, ttl in zip(self._record.numbers, left, strict=True) if ttl is not None}
        if not lives:
            yield from self.discard()
            yield from self._stored.begin_empty(self._record)
            return
        kept = self._record.forgetting(len(lives)).pack()
        key = self.name.encode()
        yield from self._writing.allocate(key, len(kept))
        yield from self._writing.write(key, len(kept), [(0, kept)])
        newest = next(iter(lives.values()))
        yield from self._writing.publish({self._key(n): ttl for n, ttl in lives.items()} | {key: newest})


def _left(record: LayerRecord, began: int, now: int, ttl: int) -> int | None:
    """Return the time to live of a layer in ms; None if the layer has ended."""
    if not isinstance(record, RotatingRecord):
        return ttl
    end = record.end(began)
    return -(-(end - now) // 1000) + record.grace if end > now else None


def target(name: str, saved: Saved) -> Op[OneKey | Layers | RestoredShards]:
    """Return the target for a saved filter, with new generations and the time of the server's clock."""
    renewed = saved.renewed(created_at=(yield from call(_TIME, [name.encode()], [])))
    if renewed.parsed is None:
        return OneKey(name, renewed)
    if isinstance(renewed.parsed, LayerRecord):
        return Layers(name, renewed, renewed.parsed)
    return RestoredShards(name, renewed, renewed.parsed)
