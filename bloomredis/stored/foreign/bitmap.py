"""A bitmap that another system writes too, without a header, so that its parameters come from the caller.

The same scripts serve it.  In place of an identity they get a description (`lua/FORMAT.md`, "Bitmaps of other
systems").  A loss cannot be detected: a missing bitmap is an empty filter.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import ClassVar, Final, NoReturn, Protocol

from bloomredis.bits.encoding import Encoder
from bloomredis.bits.layout import Layout
from bloomredis.errors import FilterMismatchError, FilterNotFoundError
from bloomredis.protocol import forms, replies, scripts
from bloomredis.protocol.calls import Wait, call, send_all, send_command
from bloomredis.protocol.replies import Refusal
from bloomredis.protocol.steps import Command, Op
from bloomredis.stored.header import Header
from bloomredis.stored.state.base import Arguments, Stored
from bloomredis.stored.state.handle import Description, Handle, ttl_seconds

_CONFIGURE: Final = scripts.load_script("configure", forms.texts)
_DESCRIPTION: Final = struct.Struct(">6sBBBB6sQQ")
_PROBES: Final = 1  # the code of the classic layout: offsets, however they were computed


class ForeignLayout(Layout, Encoder, Protocol):
    """A layout of another system, with its parameters and its key."""

    @property
    def capacity(self) -> int:
        """The number of items that the filter is sized for."""

    @property
    def error_rate(self) -> float:
        """The configured false-positive rate at `capacity` items."""

    def key(self, name: str) -> str:
        """Return the key under which the system stores a filter of this name."""


class ConfiguredLayout(ForeignLayout, Protocol):
    """A layout whose system stores the parameters in a hash, under another key."""

    def config_key(self, name: str) -> str:
        """Return the hash's key."""

    def config(self) -> dict[str, str]:
        """Return the hash's fields; the first two must equal the stored ones."""


def description(layout: ForeignLayout, ttl: int, *, renews: bool) -> bytes:
    """Return the description of a bitmap for the scripts.

    :param ttl: milliseconds, 0 for none.
    :param renews: let each insert renew the `ttl`, which otherwise counts from creation.
    """
    return _DESCRIPTION.pack(b"bitmap", 1, _PROBES, layout.num_hashes, renews, bytes(6), layout.num_bits, ttl)


class StoredBitmap(Stored):
    """A bitmap under the key that the other system gives it."""

    store: ClassVar[scripts.Variant] = ("bitmap",)
    notices_loss = False  # a missing bitmap is an empty filter

    def __init__(
        self, name: str, *, layout: ForeignLayout, ttl: int, renews: bool = False, wait: Wait | None
    ) -> None:
        super().__init__(name, layout.key(name).encode(), wait)
        self._layout = layout
        self._ttl = ttl
        self._renews = renews
        self._identity = description(layout, ttl, renews=renews)

    @property
    def layers(self) -> list[tuple[bytes, ForeignLayout]]:
        """Keys and layouts of the known bitmaps, the newest first."""
        return [(self.key, self._layout)]

    @property
    def other_keys(self) -> tuple[bytes, ...]:
        """The filter's keys that hold no bits."""
        return ()

    def open(self) -> Op[Handle]:
        """Remember the bitmap without I/O; the first script detects a key of another type."""
        yield from ()  # which makes this a generator, as in other classes
        return self.assume()

    def acknowledge(self) -> Op[bool]:
        """Return False: a loss cannot be detected."""
        yield from self.create()
        return False

    def create(self) -> Op[Handle]:
        """Check that the key holds a string or is missing; remember the bitmap."""
        yield from self.current()
        return (yield from self.open())

    def assume(self) -> Handle:
        """Remember the known bitmaps without I/O."""
        return self.use(self.new_handle(self._identity, self._layout))

    def current(self) -> Op[list[Description]]:
        """Describe each bitmap; length and ttl come from the server, the rest from the layout."""
        commands: list[Command] = [
            command for key, _ in self.layers for command in (("STRLEN", key), ("PTTL", key))
        ]
        try:
            found = yield from send_all(commands, forms.integer)
        except Refusal as refusal:
            raise self.explained(refusal) from None
        sizes = zip(found[::2], found[1::2], strict=True)
        return [
            Description(key, _header(layout), size, 0, ttl_seconds(ttl))
            for (key, layout), (size, ttl) in zip(self.layers, sizes, strict=True)
        ]

    def _recover_type(self, refusal: Refusal, handle: Handle) -> NoReturn:
        raise self.explained(refusal)

    RECOVERY = {replies.WRONG_TYPE: _recover_type}  # noqa: RUF012 - a ClassVar of the base

    def clear(self) -> Op[None]:
        """Delete the bitmaps, which empties the filter."""
        yield from self.create()
        yield from send_command(("UNLINK", *dict(self.layers)), forms.integer)

    def delete(self, arguments: Arguments, keys: Sequence[bytes]) -> Op[bool]:
        """Delete all keys; return True if a bitmap was not empty.

        The lengths are read first, so a resent UNLINK changes no answer and needs no receipt.
        """
        there = any(found.size_bytes for found in (yield from self.current()))
        yield from send_command(("UNLINK", *dict(self.layers), *self.other_keys), forms.integer)
        return there

    def expire(self, ttl: int) -> Op[None]:
        """Let all keys expire in `ttl` ms."""
        yield from self.open()
        yield from self.make_expiring(ttl)
        keys = (*dict(self.layers), *self.other_keys)
        yield from send_all([("PEXPIRE", key, ttl) for key in keys], forms.integer)

    def make_expiring(self, ttl: int) -> Op[None]:
        """Create missing bitmaps as empty strings, which expire even if their first item comes later."""
        commands: list[Command] = [("SET", key, b"", "NX", "PX", ttl) for key, _ in self.layers]
        yield from send_all(commands, forms.anything)


def _header(layout: ForeignLayout) -> Header:
    return Header(
        layout=layout.name,
        num_hashes=layout.num_hashes,
        num_bits=layout.num_bits,
        capacity=layout.capacity,
        error_rate=layout.error_rate,
        generation=b"",
    )


class ConfiguredBitmap(StoredBitmap):
    """A bitmap with a hash of parameters, which each script compares; a missing hash is created."""

    def __init__(self, name: str, *, layout: ConfiguredLayout, wait: Wait | None) -> None:
        super().__init__(name, layout=layout, ttl=0, wait=wait)
        self._configured = layout
        self._config_key = layout.config_key(name).encode()
        self._config = layout.config()
        self.creates = True
        compared = [f"{field}={value}\n" for field, value in self._config.items()][:2]
        self._identity += "".join(["config\n", *compared]).encode()

    @property
    def other_keys(self) -> tuple[bytes, ...]:
        """The key of the hash of parameters."""
        return (self._config_key,)

    def assume(self) -> Handle:
        """Remember the bitmap without I/O."""
        return self.use(self.new_handle(self._identity, self._layout, (self.key, self._config_key)))

    def open(self) -> Op[Handle]:
        """Compare the parameters with the stored ones; store them if the hash is missing."""
        pairs = [word for pair in self._config.items() for word in pair]
        return self._compared(call(_CONFIGURE, [self._config_key], pairs, self.wait))

    def create(self) -> Op[Handle]:
        return self.open()

    def existing(self) -> Op[Handle]:
        return self.handle or (yield from self._compared(self._stored_parameters()))

    def _stored_parameters(self) -> Op[Sequence[str | bytes]]:
        found = yield from send_command(("HMGET", self._config_key, *self._config), forms.texts_or_nil)
        if not any(found):
            raise Refusal(replies.MISSING, "")
        return [each or "" for each in found]

    def _compared(self, reading: Op[Sequence[str | bytes]]) -> Op[Handle]:
        yield from super().current()  # refuses a key of another type
        try:
            found = yield from reading
        except Refusal as refusal:
            raise self.explained(refusal) from None
        for (field, value), reply in list(zip(self._config.items(), found, strict=True))[:2]:
            there = reply if isinstance(reply, str) else reply.decode(errors="replace")
            if there != value:
                raise FilterMismatchError(
                    f"{self.name!r} was configured with {field} {there or 'missing'}, not {value}",
                    advice="create the layout with the parameters that the other system used",
                    command="give a --layout with the parameters that the other system used",
                )
        return self.assume()

    def current(self) -> Op[list[Description]]:
        """Describe the bitmap of a filter with these parameters, which must be stored."""
        yield from self._compared(self._stored_parameters())
        return (yield from super().current())

    def delete(self, arguments: Arguments, keys: Sequence[bytes]) -> Op[bool]:
        try:
            return (yield from super().delete(arguments, keys))
        except FilterNotFoundError:
            return False

    def _recover_config(self, refusal: Refusal, handle: Handle) -> None:
        """Drop the handle, so that the next call compares the parameters again."""
        self.known.dropped(handle.link)

    RECOVERY = StoredBitmap.RECOVERY | {replies.CHANGED: _recover_config}


def checked_layout(layout: ForeignLayout, capacity: int | None, error_rate: float | None) -> ForeignLayout:
    """Return a layout of another system; raise `ValueError` if it was created with other parameters.

    :raises TypeError: it is no layout.
    """
    if not callable(getattr(layout, "encode_all", None)):
        raise TypeError(f"layout must be None, a name, or a layout from bloomredis.compat, not {layout!r}")
    for what, given, own in (
        ("capacity", capacity, layout.capacity),
        ("error_rate", error_rate, layout.error_rate),
    ):
        if given is not None and given != own:
            raise ValueError(f"the layout was created for {what} {own}, not {given}; omit {what}")
    return layout
