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
from bloomredis.bits.layered import Stacked
from bloomredis.bits.layout import Packing
from bloomredis.bits.limits import HEADER_BYTES
from bloomredis.errors import FilterFullError, FilterLostError, FilterMismatchError, FilterNotFoundError
from bloomredis.protocol import calls, replies, scripts
from bloomredis.protocol.calls import Wait
from bloomredis.protocol.keys import beside
from bloomredis.protocol.replies import Refusal, unhex
from bloomredis.protocol.steps import Op
from bloomredis.stored import header, planning
from bloomredis.stored.base import LOSSES, Arguments, Description, Missed, Opened, Outdated, lifetime
from bloomredis.stored.header import KINDS
from bloomredis.stored.layer_record import PARAMETERS_BYTES, Root

_PUSH, _STACK, _DELETE, _DESCRIBE, _CONTAINS = map(
    scripts.load, ("push", "stack", "delete", "describe", "contains")
)
_IDENTITY: Final = struct.Struct(">6sBBQ")


class StoredStack(Missed):
    """A stack of layers under a root."""

    is_one_bitmap = False
    has_layers = True

    def __init__(
        self,
        name: str,
        *,
        made: type[Root],
        new: Root | None,
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
        self._root: Root | None = None

    @property
    def called(self) -> str:
        """The class that it belongs to."""
        return KINDS[self._made.kind]

    def open(self) -> Op[Opened]:
        """Create the stack with its first layer if it is missing and parameters were given; check it."""
        if self._lost:
            raise FilterLostError(self._lost)
        if self._new is None:
            return self._accept((yield from self._read()))
        return self._accept((yield from self._push(None, _renewed(self._new))))

    @property
    def root(self) -> Root:
        """The root as this object knows it; the stack has to be open."""
        if self._root is None:
            raise RuntimeError(f"{self.name!r} has not been opened")
        return self._root

    def current(self) -> Op[list[Description]]:
        """Read what each layer is, if it is still the stack that this object knows.

        Of a rotating stack those layers are missing that have come to their end.
        """
        yield from self._look()
        described = []
        for number in self.root.numbers:
            key = self._layer_key(number)
            try:
                text, size, ttl = yield from calls.call(_DESCRIBE, [key], [])
            except Refusal as refusal:
                if refusal.word != replies.MISSING:
                    raise self.explained(refusal) from refusal
            else:
                head = header.parse(unhex(text))
                described.append(Description(key, head, size, HEADER_BYTES, lifetime(ttl)))
        return described

    def _look(self) -> Op[None]:
        """Let a script compare what is stored with what this object knows."""
        while True:
            opened = self.opened or (yield from self.open())
            with suppress(Outdated):
                yield from self.run(_CONTAINS, opened, [opened.layout.pack_one(b"")], reads=True)
                return

    def _meet(self, refusal: Refusal, opened: Opened) -> Op[Opened]:
        """Follow a stack that has another layer by now, or give it one; notice that it is gone."""
        if refusal.word == replies.FULL:
            return (yield from self._grow(opened))
        if refusal.word == replies.CHANGED:
            found = self._parsed(refusal.detail)
            if found.head.generation == self.root.head.generation:
                return self._accept(found)
        if refusal.word == replies.DAMAGED:
            self._tell(f"a layer of {self.name!r} has vanished", damaged=True)
            yield from self.clear()
            return self.opened or (yield from self.open())
        if refusal.word not in LOSSES:
            raise refusal
        return (yield from self._lose(LOSSES[refusal.word].format(self.name), opened))

    def _grow(self, opened: Opened) -> Op[Opened]:
        # Safe to send again, and for all that ask for it at once: a stack that has grown has another root.
        known = self.root
        try:
            following = known.following()
        except FilterFullError as error:
            raise FilterFullError(f"{self.name!r} is full: {error}") from None
        try:
            found = yield from self._push(known, following)
        except FilterNotFoundError:
            return (yield from self._lose(LOSSES[replies.MISSING].format(self.name), opened))
        if found.head.generation != known.head.generation:
            return (yield from self._lose(LOSSES[replies.CHANGED].format(self.name), opened))
        return self._accept(found)

    def clear(self) -> Op[None]:
        """Empty the filter: a new generation with one layer."""
        self.forget()
        try:
            found = yield from self._read()
        except FilterNotFoundError:
            yield from self.open()
            return
        while True:
            empty = _renewed(replace(found, newest=0, begun=()))
            found = yield from self._push(found, empty)
            if found.head.generation == empty.head.generation:
                self._accept(found)
                return

    def delete(self, arguments: Arguments, keys: Sequence[bytes]) -> Op[bool]:
        """Delete root and layers, whatever the generation; say whether there were any."""
        while True:
            self.forget()
            try:
                opened = self._accept((yield from self._read()))
                every = [opened.key, *keys, *opened.extra]
                yield from calls.call(_DELETE, every, [opened.identity, *arguments], self.wait)
            except FilterNotFoundError:
                return False
            except Refusal as refusal:
                if refusal.word not in (replies.CHANGED, replies.MISSING):
                    raise self.explained(refusal) from refusal
            else:
                self.forget()
                return True

    # -- the root

    def _read(self) -> Op[Root]:
        text, _ = yield from self._call(_STACK, [])
        return self._parsed(text)

    def _push(self, known: Root | None, wanted: Root) -> Op[Root]:
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

    def _parsed(self, text: str | bytes) -> Root:
        try:
            root = self._made.parse(unhex(text))
        except ValueError as error:
            raise FilterMismatchError(
                f"{self.name!r} is no filter that this release can use: {error}"
            ) from None
        self.compare(root.parameters | {"layout": root.head.layout}, self._wanted)
        return root

    def _layer_key(self, number: int) -> bytes:
        return beside(self.key) + b"layer:%d" % number

    def _accept(self, root: Root) -> Opened:
        self._lost = None
        self._root = root
        newest, *older = (self._layer_key(number) for number in root.numbers)
        layout, described = _described(root if not root.shared else replace(root, begun=root.begun[-1:]))
        stored = root.pack()
        return self.know(
            _IDENTITY.pack(b"layers", 2, len(older), len(stored)) + stored + described,
            layout,
            [newest, self.key, *older],
            generation=root.head.generation,
            layers=len(root.begun) if root.shared else 1,
        )


@lru_cache(16)
def _described(root: Root) -> tuple[Packing, bytes]:
    """Return how items are packed for the layers, and what the scripts are told about these."""
    layers = root.layers()
    made = tuple(map(planning.stored, layers))
    return (made[0] if root.shared else Stacked(made)), b"".join(
        layer.pack()[:PARAMETERS_BYTES] for layer in layers
    )


def _renewed(root: Root) -> Root:
    """Return a root of another generation."""
    return replace(root, head=replace(root.head, generation=os.urandom(8)))
