"""The stored layers of a filter that grows or rotates, and their record.

Every script call carries the record that this object knows, and the parameters of each layer.  If another
client has begun a layer since, the script refuses the call, and the refusal carries the stored record.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Final, Unpack

from bloomredis.bits.layered import Layered
from bloomredis.bits.layout import Layout, Packing
from bloomredis.bits.limits import HEADER_BYTES
from bloomredis.errors import (
    FilterFullError,
    FilterNotFoundError,
)
from bloomredis.protocol import forms, replies, scripts
from bloomredis.protocol.calls import call
from bloomredis.protocol.clock import next_round
from bloomredis.protocol.explanations import AGAIN
from bloomredis.protocol.replies import Refusal, Unconfirmed, unhex
from bloomredis.protocol.steps import Op
from bloomredis.stored import encoding, header, planning
from bloomredis.stored.header import KINDS, unusable
from bloomredis.stored.layers.record import MAX_LAYERS, PARAMETERS_BYTES, LayerRecord
from bloomredis.stored.state.base import Arguments, taken
from bloomredis.stored.state.handle import Description, Handle, Layer, ttl_seconds
from bloomredis.stored.state.knowledge import Record
from bloomredis.stored.state.versioned import Versioned

_ADD_LAYER: Final = scripts.load_script("add_layer", forms.begun)
_DESCRIBE_LAYERS: Final = scripts.load_script("describe_layers", forms.record)
_SWEEP_LAYERS, _DELETE = (scripts.load_script(verb, forms.integer) for verb in ("sweep_layers", "delete"))
_DESCRIBE: Final = scripts.load_script("describe", forms.state)
_CONTAINS: Final = scripts.load_script("contains")
_ALL: Final = range(MAX_LAYERS)
"""The numbers of all layers that a growing filter can have."""

_IDENTITY: Final = struct.Struct(">6sBBQ")


class StoredLayers(Versioned[LayerRecord]):
    """A filter in several layers with a record."""

    is_one_bitmap = False
    store = ("layers",)
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
        self.called = KINDS[made.kind]
        # None if only a stored filter may be opened
        self.new = new.encoded(self.encoding) if new and self.encoding else new
        self.creates = new is not None
        self._wanted: dict[str, object] = {} if new is None else new.parameters
        if layout is not None:
            self._wanted["layout"] = layout

    @property
    def record(self) -> LayerRecord:
        """The record that this object knows; the filter must be open."""
        record: LayerRecord | None = self.known.now().found
        if record is None:
            raise RuntimeError(f"{self.name!r} has not been opened")
        return record

    def _find(self, *, creates: bool) -> Op[LayerRecord]:
        known = self.known.now()
        record: LayerRecord | None = known.found
        if record is not None and known.state == "making" and known.loss and known.loss.is_damage:
            # If several clients try this, one record is stored, and all get it.
            return (yield from self._push(record, record.renewed()))
        if self.new is None or not creates:
            return (yield from self._read())
        left = record.numbers if record else ()  # layers whose record has vanished
        return (yield from self._push(None, self.new.renewed(), left))

    def _find_whole(self, *, creates: bool) -> Op[LayerRecord | None]:
        """Return the stored record; None, after the loss was noted, if one of its layers is missing."""
        known = self.known.now()
        found = yield from self._find(creates=creates)
        handle = self._handle_of(found)
        script, packed = self.variant(_CONTAINS, handle), handle.layout.pack_one(b"")  # any script would do
        try:
            yield from call(script, [handle.key, *handle.extra], [handle.identity, packed])
        except Refusal as refusal:
            if refusal.word == replies.DAMAGED and self.known.opened(known, handle, found):
                self._recover_damage(refusal, handle)
            return None
        return found

    def current(self) -> Op[list[Description]]:
        """Describe each layer, the newest first, except layers that a rotating filter has forgotten."""
        # Any script would do: each compares the stored record with the known one.
        yield from self.attempt(
            lambda handle: self.run(_CONTAINS, handle, [handle.layout.pack_one(b"")], reads=True),
            self.existing,
        )
        described = []
        for number in self.record.numbers:
            key = self.layer_key(number)
            try:
                data, size, ttl = yield from call(_DESCRIBE, [key], [])
            except Refusal as refusal:
                if refusal.word != replies.MISSING:
                    raise self.explained(refusal) from None
                continue
            left = ttl if ttl < 0 else max(0, ttl - self.record.grace)
            if left:
                head = header.parse(data)
                described.append(Description(key, head, size, HEADER_BYTES, ttl_seconds(left)))
        return described

    def recorded_layers(self, handle: Handle) -> Sequence[Layer]:
        """Return the layers, the newest first."""
        record = self._record_of(handle)
        made = zip(record.numbers, reversed(record.began), strict=True)
        heads = ((number, replace(record.layer(number), created_at=began)) for number, began in made)
        return [Layer(self.layer_key(number), head.identity, planning.stored(head)) for number, head in heads]

    def segmented(self, handle: Handle) -> Layout:
        """Return the layout of the newest layer."""
        return self.recorded_layers(handle)[0].layout

    # -- recoveries from a script's refusal

    def _follow(self, refusal: Refusal, handle: Handle) -> None:
        """Accept the stored record if another layer has begun; report a loss if the filter was replaced."""
        self._switch(self._parsed(refusal.detail), handle)

    def _switch(self, found: LayerRecord, handle: Handle) -> None:
        known = self.known.now()
        if known.link is not handle.link:
            return
        if found.continues(known.found) or known.found.ended_before(found):
            self.known.opened(known, self._handle_of(found), found)
        else:
            self._lose(self.loss(replies.CHANGED), handle.link)

    def _grow(self, refusal: Refusal, handle: Handle) -> Op[None]:
        # Once a layer is added, the stored record is not `known`: a retry or another client adds no second.
        known = self._record_of(handle)
        try:
            found = yield from self._begin(known, known.following())
        except FilterFullError as error:
            error.restate(f"{self.name!r} is full: {error.problem}")
            raise
        except Refusal as met:
            if met.word == replies.FULL:
                raise FilterFullError(
                    f"{self.name!r} is full: {met.detail}",
                    advice="load the items into a new filter with a larger capacity",
                    command="create a filter with a larger --capacity, and add the items again",
                ) from None
            yield from self._recover(met, handle)
        else:
            self._switch(found, handle)

    def _begin_anew(self, refusal: Refusal, handle: Handle) -> Op[None]:
        """Begin a new generation of a filter whose layers have all ended, which is no loss."""
        self._switch((yield from self._push(None, self._record_of(handle).renewed())), handle)

    def _recover_damage(self, refusal: Refusal, handle: Handle) -> None:
        self._lose(
            f"a layer of {self.name!r} is missing: it has vanished, or the record was renamed or copied",
            handle.link,
            is_damage=True,
            in_part=True,
        )

    RECOVERY = Versioned.RECOVERY | {
        replies.CHANGED: _follow,
        replies.FULL: _grow,
        replies.ENDED: _begin_anew,
        replies.DAMAGED: _recover_damage,
    }

    # -- the filter as a whole

    def clear(self) -> Op[None]:
        """Empty the filter and give it a new generation with one layer."""
        since = self.known.now()
        try:
            found = yield from self._read()
        except FilterNotFoundError:
            if self.new is None:
                raise
            new = self.new
            yield from self._open_by(lambda: self._push(None, new.renewed(), _ALL), stands=False)
            return
        rounds = None
        while True:
            rounds = yield from next_round(rounds, self.name)
            empty = found.renewed()
            empty = replace(empty, head=empty.head.acknowledged)
            found = yield from self._push(found, empty, _ALL)
            if found.head.generation == empty.head.generation:
                yield from self._take_emptied(found, since)
                return

    def delete(self, arguments: Arguments, keys: Sequence[bytes]) -> Op[bool]:
        """Delete record and layers, and the layers of a lost record; return True if a record existed."""
        existed = yield from self._delete_recorded(arguments, keys)
        yield from self.delete_orphans()
        return existed

    def delete_orphans(self) -> Op[None]:
        """Delete layers without a record; do nothing if a record exists."""
        yield from self._call(_SWEEP_LAYERS, [], self.wait, [self.key, *map(self.layer_key, _ALL)])

    def begin_empty(self, like: LayerRecord) -> Op[None]:
        """Create an empty filter with a record's parameters.

        :raises FilterExistsError: the name is taken.
        """
        wanted = like.renewed()
        if (yield from self._push(None, wanted)).head.generation != wanted.head.generation:
            raise taken(self.name)

    def _delete_recorded(self, arguments: Arguments, keys: Sequence[bytes]) -> Op[bool]:
        rounds = None
        while True:
            rounds = yield from next_round(rounds, self.name)
            try:
                handle = self._handle_of((yield from self._read()))
            except FilterNotFoundError:
                return False
            every = [handle.key, *keys, *handle.extra]
            if (yield from self.if_unchanged(_DELETE, every, [handle.identity, *arguments])) is not None:
                return True

    # -- the record

    def _read(self) -> Op[LayerRecord]:
        data, left = yield from self._call(_DESCRIBE_LAYERS, [])
        self._check_ttl(left)
        return self._parsed(data)

    def _push(
        self, known: LayerRecord | None, wanted: LayerRecord, others: Sequence[int] = ()
    ) -> Op[LayerRecord]:
        """Do the same as `_begin`, but raise the public error for a refusal."""
        try:
            return (yield from self._begin(known, wanted, others))
        except Refusal as refusal:
            raise self.explained(refusal) from None

    def _begin(
        self, known: LayerRecord | None, wanted: LayerRecord, others: Sequence[int] = ()
    ) -> Op[LayerRecord]:
        """Begin the newest layer of `wanted` if `known` is the stored record.

        Return the record that is stored afterwards.

        :param others: numbers of layers that may remain of earlier generations; they are deleted if `wanted`
            begins a new generation.
        """
        layers = [] if known is None else list(known.numbers)
        layers += sorted(set(others).difference(layers))
        keys = [self.key, *map(self.layer_key, (wanted.newest, *layers))]
        layer = wanted.layer(wanted.newest).pack()
        arguments: Arguments = [known.pack() if known else b"", wanted.template(), layer, self._ttl]
        try:
            (data, left), policy = yield from call(_ADD_LAYER, keys, arguments, self.wait)
        except Unconfirmed as error:
            raise replies.outcome_unknown(error, self.name, AGAIN) from None
        if known is None:
            self._check_ttl(left)
        self._warn_of_eviction(policy)
        return self._parsed(data)

    def _record_of(self, handle: Handle) -> LayerRecord:
        """Return the record of a handle."""
        *_, length = _IDENTITY.unpack_from(handle.identity)
        return self._made.parse(handle.identity[_IDENTITY.size :][:length])

    def _parsed(self, stored: bytes | str) -> LayerRecord:
        """Return the record in a reply's bytes or in a refusal's hexadecimal digits."""
        try:
            record = self._made.parse(unhex(stored) if isinstance(stored, str) else stored)
        except ValueError as error:
            raise unusable(self.name, error) from None
        self.compare(record.parameters | {"layout": record.head.layout}, self._wanted)
        encoding.check_encoding(self.name, record.head.encoding, self.encoding)
        return record

    def _acknowledged(self, known: Record) -> Op[LayerRecord | None]:
        found = yield from self._read()
        return found if found.succeeds(known.found) else None

    def _mark(self, found: LayerRecord) -> Op[LayerRecord | None]:
        head = yield from self._mark_head(found.head)
        return None if head is None else replace(found, head=head)

    def layer_key(self, number: int) -> bytes:
        """Return the key of the layer with this number."""
        return self.auxiliary + b"layer:%d" % number

    def _handle_of(self, record: LayerRecord) -> Handle:
        newest, *older = (self.layer_key(number) for number in record.numbers)
        layout, described = _described(replace(record, began=record.began[-1:]) if record.shared else record)
        stored = record.pack()
        return self.new_handle(
            _IDENTITY.pack(b"layers", 2, len(older), len(stored)) + stored + described,
            layout,
            [newest, self.key, *older],
            generation=record.head.generation,
            layers=len(record.began) if record.shared else 1,
        )


@lru_cache(16)
def _described(record: LayerRecord) -> tuple[Packing, bytes]:
    """Return the layout of all layers together, and their parameters for the scripts."""
    layers = record.layers()
    made = tuple(map(planning.stored, layers))
    return (made[0] if record.shared else Layered(made)), b"".join(
        layer.pack()[:PARAMETERS_BYTES] for layer in layers
    )
