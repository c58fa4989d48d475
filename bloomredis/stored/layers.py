"""What is stored of a stack of layers: whether it is the one that this object knows, and how it grows.

Every script call carries the root that this object knows, and the parameters of each layer.  Where the root
is another one of the same generation, others have begun a layer, and the script's refusal says which layers
there are now.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from functools import lru_cache
from typing import Final

from bloomredis.arguments import OnLost
from bloomredis.bits.layered import Layered
from bloomredis.bits.layout import Packing
from bloomredis.bits.limits import HEADER_BYTES
from bloomredis.errors import FilterFullError, FilterLostError, FilterMismatchError, FilterNotFoundError
from bloomredis.protocol import calls, replies, scripts
from bloomredis.protocol.calls import Wait
from bloomredis.protocol.keys import beside
from bloomredis.protocol.replies import Refusal, unhex
from bloomredis.protocol.steps import Op
from bloomredis.stored import header, planning
from bloomredis.stored.base import (
    LOSSES,
    Arguments,
    Description,
    Handle,
    LayoutChanged,
    Versioned,
    ttl_seconds,
)
from bloomredis.stored.header import KINDS
from bloomredis.stored.layer_record import PARAMETERS_BYTES, LayerRecord

_PUSH, _STACK, _DELETE, _DESCRIBE, _CONTAINS = map(
    scripts.load, ("add_layer", "describe_layers", "delete", "describe", "contains")
)
_IDENTITY: Final = struct.Struct(">6sBBQ")


class StoredLayers(Versioned):
    """A stack of layers under a root."""

    is_one_bitmap = False
    has_layers = True

    def __init__(
        self,
        name: str,
        *,
        made: type[LayerRecord],
        new: LayerRecord | None,
        layout: str | None,
        ttl: int,
        on_lost: OnLost,
        wait: Wait | None,
    ) -> None:
        super().__init__(name, ttl=ttl, on_lost=on_lost, wait=wait)
        self._made = made
        self._new = new  # what it is created with
        self._wanted: dict[str, object] = {} if new is None else new.parameters
        if layout is not None:
            self._wanted["layout"] = layout
        self._record: LayerRecord | None = None

    @property
    def called(self) -> str:
        """The class that it belongs to."""
        return KINDS[self._made.kind]

    def open(self) -> Op[Handle]:
        """Create the stack with its first layer if it is missing and parameters were given; check it."""
        if self._lost:
            raise FilterLostError(self._lost)
        if self._new is None:
            return self._accept((yield from self._read()))
        return self._accept((yield from self._push(None, _renewed(self._new))))

    @property
    def record(self) -> LayerRecord:
        """The root as this object knows it; the stack has to be open."""
        if self._record is None:
            raise RuntimeError(f"{self.name!r} has not been opened")
        return self._record

    def current(self) -> Op[list[Description]]:
        """Read what each layer is, if it is still the stack that this object knows.

        Of a rotating stack those layers are missing that have come to their end.
        """
        yield from self._look()
        described = []
        for number in self.record.numbers:
            key = self._layer_key(number)
            try:
                text, size, ttl = yield from calls.call(_DESCRIBE, [key], [])
            except Refusal as refusal:
                if refusal.word != replies.MISSING:
                    raise self.explained(refusal) from refusal
            else:
                head = header.parse(unhex(text))
                described.append(Description(key, head, size, HEADER_BYTES, ttl_seconds(ttl)))
        return described

    def _look(self) -> Op[None]:
        """Let a script compare what is stored with what this object knows."""
        while True:
            handle = self.handle or (yield from self.open())
            with suppress(LayoutChanged):
                yield from self.run(_CONTAINS, handle, [handle.layout.pack_one(b"")], reads=True)
                return

    def _recover(self, refusal: Refusal, handle: Handle) -> Op[Handle]:
        """Follow a stack that has another layer by now, or give it one; notice that it is gone."""
        if refusal.word == replies.FULL:
            return (yield from self._grow(handle))
        if refusal.word == replies.CHANGED:
            found = self._parsed(refusal.detail)
            if found.head.generation == self.record.head.generation:
                return self._accept(found)
        if refusal.word == replies.DAMAGED:
            self._tell(f"a layer of {self.name!r} has vanished", damaged=True)
            yield from self.clear()
            return self.handle or (yield from self.open())
        if refusal.word not in LOSSES:
            raise refusal
        return (yield from self._lose(LOSSES[refusal.word].format(self.name), handle))

    def _grow(self, handle: Handle) -> Op[Handle]:
        # Safe to send again, and for all that ask for it at once: a stack that has grown has another root.
        known = self.record
        try:
            following = known.following()
        except FilterFullError as error:
            raise FilterFullError(f"{self.name!r} is full: {error}") from None
        try:
            found = yield from self._push(known, following)
        except FilterNotFoundError:
            return (yield from self._lose(LOSSES[replies.MISSING].format(self.name), handle))
        if found.head.generation != known.head.generation:
            return (yield from self._lose(LOSSES[replies.CHANGED].format(self.name), handle))
        return self._accept(found)

    def clear(self) -> Op[None]:
        """Empty the filter: a new generation with one layer."""
        self.reset()
        try:
            found = yield from self._read()
        except FilterNotFoundError:
            yield from self.open()
            return
        while True:
            empty = _renewed(replace(found, newest=0, began=()))
            found = yield from self._push(found, empty)
            if found.head.generation == empty.head.generation:
                self._accept(found)
                return

    def delete(self, arguments: Arguments, keys: Sequence[bytes]) -> Op[bool]:
        """Delete root and layers, whatever the generation; say whether there were any."""
        while True:
            self.reset()
            try:
                handle = self._accept((yield from self._read()))
                every = [handle.key, *keys, *handle.extra]
                yield from calls.call(_DELETE, every, [handle.identity, *arguments], self.wait)
            except FilterNotFoundError:
                return False
            except Refusal as refusal:
                if refusal.word not in (replies.CHANGED, replies.MISSING):
                    raise self.explained(refusal) from refusal
            else:
                self.reset()
                return True

    # -- the root

    def _read(self) -> Op[LayerRecord]:
        text, _ = yield from self._call(_STACK, [])
        return self._parsed(text)

    def _push(self, known: LayerRecord | None, wanted: LayerRecord) -> Op[LayerRecord]:
        """Begin the newest layer of `wanted` if the root is the one known; return what is there then."""
        layers = [] if known is None else [self._layer_key(number) for number in known.numbers]
        text, _ = yield from self._call(
            _PUSH,
            [
                b"" if known is None else known.pack(),
                wanted.template(),
                wanted.layer(wanted.newest).pack(),
                self._ttl,
            ],
            self.wait,
            [self.key, self._layer_key(wanted.newest), *layers],
        )
        return self._parsed(text)

    def explained(self, refusal: Refusal) -> FilterNotFoundError | FilterMismatchError:
        """Return what a caller is told who has not used the filter before."""
        if refusal.word == replies.FOREIGN:
            return FilterMismatchError(f"{self.name!r} holds no {self.called} ({refusal}); use another name")
        return super().explained(refusal)

    def _parsed(self, text: str | bytes) -> LayerRecord:
        try:
            record = self._made.parse(unhex(text))
        except ValueError as error:
            raise FilterMismatchError(
                f"{self.name!r} is no filter that this release can use: {error}"
            ) from None
        self.compare(record.parameters | {"layout": record.head.layout}, self._wanted)
        return record

    def _layer_key(self, number: int) -> bytes:
        return beside(self.key) + b"layer:%d" % number

    def _accept(self, record: LayerRecord) -> Handle:
        self._lost = None
        self._record = record
        newest, *older = (self._layer_key(number) for number in record.numbers)
        layout, described = _described(
            record if not record.shared else replace(record, began=record.began[-1:])
        )
        stored = record.pack()
        return self.remember(
            _IDENTITY.pack(b"layers", 2, len(older), len(stored)) + stored + described,
            layout,
            [newest, self.key, *older],
            generation=record.head.generation,
            layers=len(record.began) if record.shared else 1,
        )


@lru_cache(16)
def _described(record: LayerRecord) -> tuple[Packing, bytes]:
    """Return how items are packed for the layers, and what the scripts are told about these."""
    layers = record.layers()
    made = tuple(map(planning.stored, layers))
    return (made[0] if record.shared else Layered(made)), b"".join(
        layer.pack()[:PARAMETERS_BYTES] for layer in layers
    )


def _renewed(record: LayerRecord) -> LayerRecord:
    """Return a root of another generation."""
    return replace(record, head=replace(record.head, generation=os.urandom(8)))
