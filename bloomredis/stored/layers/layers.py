"""The stored layers of a filter that grows or rotates, and their record.

Every script call carries the record that this object knows, and the parameters of each layer.  If others
have begun a layer since, the script refuses with the record that is stored now.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Final, Unpack

from bloomredis.bits.layered import Layered
from bloomredis.bits.layout import Packing
from bloomredis.bits.limits import HEADER_BYTES
from bloomredis.errors import (
    BloomError,
    FilterFullError,
    FilterMismatchError,
    FilterNotFoundError,
    OutcomeUnknownError,
)
from bloomredis.protocol import forms, replies, scripts
from bloomredis.protocol.calls import call
from bloomredis.protocol.replies import Refusal, Unconfirmed, unhex
from bloomredis.protocol.steps import Op
from bloomredis.stored import encoding, header, planning
from bloomredis.stored.header import KINDS
from bloomredis.stored.layers.record import MAX_LAYERS, PARAMETERS_BYTES, LayerRecord
from bloomredis.stored.state.base import Arguments, taken
from bloomredis.stored.state.handle import Description, Handle, ttl_seconds
from bloomredis.stored.state.versioned import Versioned

_ADD_LAYER, _DESCRIBE_LAYERS = (scripts.load(verb, forms.record) for verb in ("add_layer", "describe_layers"))
_SWEEP_LAYERS, _DELETE = (scripts.load(verb, forms.integer) for verb in ("sweep_layers", "delete"))
_DESCRIBE: Final = scripts.load("describe", forms.state)
_CONTAINS: Final = scripts.load("contains")
_ALL: Final = range(MAX_LAYERS)
"""The numbers of all layers that a filter can have which does not forget any."""

_IDENTITY: Final = struct.Struct(">6sBBQ")


class StoredLayers(Versioned[LayerRecord]):
    """A filter of several layers under a record."""

    is_one_bitmap = False
    has_layers = True

    def __init__(
        self,
        name: str,
        *,
        made: type[LayerRecord],
        new: LayerRecord | None,
        layout: str | None,
        **options: Unpack[planning.StorageOptions],
    ) -> None:
        super().__init__(name, **options)
        self._made = made
        self._new = new and new.encoded(self.encoding or 0)  # None if it must exist
        self._wanted: dict[str, object] = {} if new is None else new.parameters
        if layout is not None:
            self._wanted["layout"] = layout
        self._record: LayerRecord | None = None
        self._damaged: LayerRecord | None = None  # to be replaced by an empty one

    @property
    def called(self) -> str:
        return KINDS[self._made.kind]

    @property
    def record(self) -> LayerRecord:
        """The record as this object knows it; the filter has to be open."""
        if self._record is None:
            raise RuntimeError(f"{self.name!r} has not been opened")
        return self._record

    def _find(self) -> Op[LayerRecord]:
        if self._damaged is not None:  # whoever comes second gets the record that came of it
            return (yield from self._push(self._damaged, self._damaged.renewed()))
        if self._new is None:
            return (yield from self._read())
        left = self._record.numbers if self._record else ()  # where their record has vanished
        return (yield from self._push(None, self._new.renewed(), left))

    def current(self) -> Op[list[Description]]:
        """Describe each layer, the newest first; those that a rotating filter has forgotten are left out."""
        # Any script compares the stored record with the known one.
        yield from self.attempt(
            lambda handle: self.run(_CONTAINS, handle, [handle.layout.pack_one(b"")], reads=True)
        )
        described = []
        for number in self.record.numbers:
            key = self.layer_key(number)
            try:
                data, size, ttl = yield from call(_DESCRIBE, [key], [])
            except Refusal as refusal:
                if refusal.word != replies.MISSING:
                    raise self.explained(refusal) from refusal
                continue
            left = ttl if ttl < 0 else max(0, ttl - self.record.grace)
            if left:
                head = header.parse(data)
                described.append(Description(key, head, size, HEADER_BYTES, ttl_seconds(left)))
        return described

    # -- recoveries from a script's refusal

    def _follow(self, refusal: Refusal, handle: Handle) -> Op[None]:
        """Follow a filter that has another layer by now; notice that it is another one."""
        self._switch(self._parsed(refusal.detail), handle)
        return
        yield  # a generator, as the other recoveries are

    def _switch(self, found: LayerRecord, handle: Handle) -> None:
        if self.handle is not handle:
            return
        known = self._known(handle)
        if found.continues(known) or known.ended_before(found):
            self._accept(found)
        else:
            self.lose(self.loss(replies.CHANGED), handle)

    def _grow(self, refusal: Refusal, handle: Handle) -> Op[None]:  # noqa: ARG002 - it is full
        # Safe to send again, and by several at once: a filter that has grown has another record.
        known = self._known(handle)
        try:
            found = yield from self._begin(known, known.following())
        except FilterFullError as error:
            raise FilterFullError(f"{self.name!r} is full: {error}") from None
        except Refusal as met:
            if met.word == replies.FULL:
                raise FilterFullError(f"{self.name!r} is full: {met.detail}") from None
            yield from self._recover(met, handle)
        else:
            self._switch(found, handle)

    def _begin_anew(self, refusal: Refusal, handle: Handle) -> Op[None]:  # noqa: ARG002 - it has ended
        """Begin a new generation of a filter that has come to its end by itself, which is no loss."""
        self._switch((yield from self._push(None, self._known(handle).renewed())), handle)

    def _recover_damage(self, refusal: Refusal, handle: Handle) -> Op[None]:  # noqa: ARG002 - one layer is as bad
        self._damaged = self._known(handle)
        try:
            self.lose(
                f"a layer of {self.name!r} is missing: it has vanished, or the record was copied without it",
                handle,
                damaged=True,
            )
        except BaseException:
            self._damaged = None
            raise
        yield from ()  # a generator, as the other recoveries are

    RECOVERY = Versioned.RECOVERY | {
        replies.CHANGED: _follow,
        replies.FULL: _grow,
        replies.ENDED: _begin_anew,
        replies.DAMAGED: _recover_damage,
    }

    # -- the filter as a whole

    def clear(self) -> Op[None]:
        """Empty the filter: a new generation with one layer."""
        self.reset()
        since = self._changes
        try:
            found = yield from self._read()
        except FilterNotFoundError:
            if self._new is None:
                raise
            found = yield from self._push(None, self._new.renewed(), _ALL)
            yield from self._go_on_with(found, since)
            return
        while True:
            empty = found.renewed()
            found = yield from self._push(found, empty, _ALL)
            if found.head.generation == empty.head.generation:
                yield from self._go_on_with(found, since)
                return

    def delete(self, arguments: Arguments, keys: Sequence[bytes]) -> Op[bool]:
        """Delete record and layers, also those of a record that was lost; True if there was a record."""
        existed = yield from self._delete_recorded(arguments, keys)
        yield from self.sweep()
        return existed

    def sweep(self) -> Op[None]:
        """Delete the layers of a record that was lost, if there is no record."""
        yield from self._call(_SWEEP_LAYERS, [], self.wait, [self.key, *map(self.layer_key, _ALL)])

    def begin_empty(self, like: LayerRecord) -> Op[None]:
        """Begin an empty filter with that record's parameters; `FilterMismatchError` if there is one."""
        wanted = like.renewed()
        if (yield from self._push(None, wanted)).head.generation != wanted.head.generation:
            raise taken(self.name)

    def _delete_recorded(self, arguments: Arguments, keys: Sequence[bytes]) -> Op[bool]:
        while True:
            self.reset()
            try:
                handle = self._accept((yield from self._read()))
            except FilterNotFoundError:
                return False
            every = [handle.key, *keys, *handle.extra]
            if (yield from self._as_known(_DELETE, every, [handle.identity, *arguments])) is not None:
                return True

    # -- the record

    def _read(self) -> Op[LayerRecord]:
        data, left = yield from self._call(_DESCRIBE_LAYERS, [])
        self._check_ttl(left)
        return self._parsed(data)

    def _push(
        self, known: LayerRecord | None, wanted: LayerRecord, others: Sequence[int] = ()
    ) -> Op[LayerRecord]:
        """Do the same as `_begin`; a refusal is explained as to a new caller."""
        try:
            return (yield from self._begin(known, wanted, others))
        except Refusal as refusal:
            raise self.explained(refusal) from refusal

    def _begin(
        self, known: LayerRecord | None, wanted: LayerRecord, others: Sequence[int] = ()
    ) -> Op[LayerRecord]:
        """Begin the newest layer of `wanted` if the record is the known one; return the stored record.

        :param others: layers that may be left of earlier generations, and are deleted if this is a new one.
        """
        layers = [] if known is None else list(known.numbers)
        layers += sorted(set(others).difference(layers))
        keys = [self.key, *map(self.layer_key, (wanted.newest, *layers))]
        made: Arguments = [wanted.template(), wanted.layer(wanted.newest).pack(), self._ttl]
        try:
            data, left = yield from call(_ADD_LAYER, keys, [known.pack() if known else b"", *made], self.wait)
        except Unconfirmed as error:
            raise OutcomeUnknownError(str(error)) from None
        if known is None:
            self._check_ttl(left)
        return self._parsed(data)

    def _known(self, handle: Handle) -> LayerRecord:
        """Return the record of a handle."""
        *_, length = _IDENTITY.unpack_from(handle.identity)
        return self._made.parse(handle.identity[_IDENTITY.size :][:length])

    def explained(self, refusal: Refusal) -> BloomError:
        """Return the public error for a caller who has not used the filter before."""
        if refusal.word == replies.FOREIGN:
            return FilterMismatchError(f"{self.name!r} holds no {self.called} ({refusal}); use another name")
        return super().explained(refusal)

    def _parsed(self, stored: bytes | str) -> LayerRecord:
        """Return a record: its bytes, or in a refusal their hexadecimal digits."""
        try:
            record = self._made.parse(unhex(stored) if isinstance(stored, str) else stored)
        except ValueError as error:
            raise FilterMismatchError(
                f"{self.name!r} is no filter that this release can use: {error}"
            ) from None
        self.compare(record.parameters | {"layout": record.head.layout}, self._wanted)
        encoding.check(self.name, record.head.encoding, self.encoding)
        return record

    def layer_key(self, number: int) -> bytes:
        """Return the key of the layer with that number."""
        return self.auxiliary + b"layer:%d" % number

    def _accept(self, record: LayerRecord) -> Handle:
        self._damaged = None
        self._record = record
        newest, *older = (self.layer_key(number) for number in record.numbers)
        layout, described = _described(replace(record, began=record.began[-1:]) if record.shared else record)
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
    """Return the layout of all layers, and their parameters for the scripts."""
    layers = record.layers()
    made = tuple(map(planning.stored, layers))
    return (made[0] if record.shared else Layered(made)), b"".join(
        layer.pack()[:PARAMETERS_BYTES] for layer in layers
    )
