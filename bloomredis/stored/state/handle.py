"""Handles of verified filters, and descriptions of filters and layers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, TypeVar, cast

from bloomredis.bits.layout import Layout, Packing
from bloomredis.errors import BloomError
from bloomredis.protocol.calls import framed, tail_of
from bloomredis.protocol.receipts import Pending
from bloomredis.protocol.scripts import CAPPED, Script, Variant
from bloomredis.protocol.steps import Command, Part
from bloomredis.stored.header import Header

R = TypeVar("R")


class Description(NamedTuple):
    """A filter as the server described it; `ttl` is in seconds, None if the filter does not expire."""

    key: bytes
    header: Header
    size_bytes: int
    first_byte: int  # the index of the first byte of bits
    ttl: float | None
    has_bits: bool = True  # the bits can be read


class Layer(NamedTuple):
    """A layer of a filter, as the filter's record describes it."""

    key: bytes
    identity: bytes
    layout: Layout


def ttl_seconds(ttl: int) -> float | None:
    """Convert a PTTL reply to seconds; None if the key does not expire."""
    return ttl / 1000 if ttl >= 0 else None


class Link:
    """Where a record of `knowledge` has its successor; the calls made with the record carry it.

    :ivar generation: of the open filter; None if there is none.
    :ivar next: has at most one value, the successor, which `setdefault` installs.
    """

    __slots__ = ("generation", "next")

    def __init__(self, generation: bytes | None = None) -> None:
        self.generation = generation
        self.next: dict[int, Any] = {}


IN_BLOCKS: Final[tuple[Variant, ...]] = ("one", "blocks"), (CAPPED, "one", "blocks")
"""The variants of one bitmap in blocks, of which a test can read single blocks."""


class LayoutChanged(BloomError):  # noqa: N818 - it never reaches a caller
    """The stored filter changed, and refused the call: acquire, pack again and retry.

    :ivar pending: the call's items, if an earlier attempt may have added them, each with its pending call.
    """

    pending: Sequence[tuple[str | bytes, Pending]] = ()


@dataclass(frozen=True, slots=True, eq=False)
class Handle:
    """A verified filter: the values that every call to it needs."""

    identity: bytes
    layout: Packing
    items: int  # the most items in one script call
    key: bytes
    extra: tuple[bytes, ...] = ()  # keys that every script gets after its own
    generation: bytes = b""  # empty for a bitmap of another system
    check: int = 0  # a checksum of the generation, for the names of calls
    script_variant: Variant = ()
    name: str = ""  # of the filter, for errors
    counted: list[int] = field(default_factory=lambda: [0], repr=False)  # the largest count that was seen
    link: Link = field(default_factory=Link, repr=False)
    is_capped: bool = field(init=False)  # its scripts refuse the first new item beyond the capacity
    scripts: dict[object, Script[Any]] = field(default_factory=dict, repr=False)  # in its variant
    frames: dict[tuple[str, int, int], bytes] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "is_capped", self.script_variant[:1] == (CAPPED,))
        if self.link.generation is None:  # else it is the link of the whole filter, in the handle of a shard
            self.link.generation = self.generation

    @property
    def bitmap(self) -> Layout:
        """The layout of a filter in one bitmap."""
        return cast("Layout", self.layout)

    def tail(self, keys: Sequence[bytes], arguments: Sequence[Part]) -> Command:
        """Return the parts after a script's name: the number of keys, all keys, the identity, the arguments.

        :param keys: the script's keys besides the filter's own.
        """
        return tail_of((self.key, *keys, *self.extra), (self.identity, *arguments))

    def make_frame(self, script: Script[R], keys: int, arguments: int) -> bytes:
        """Make the format string for calls of a script with these numbers of keys and arguments."""
        command = ("EVALSHA", script.sha, *self.tail([b""] * keys, [b""] * arguments))
        varying = (*range(4, 4 + keys), *range(len(command) - arguments, len(command)))
        frame = self.frames[script.sha, keys, arguments] = framed(command, varying)
        return frame

    def __reduce__(self) -> tuple[object, ...]:
        fields = (self.identity, self.layout, self.items, self.key, self.extra, self.generation, self.check)
        return Handle, (*fields, self.script_variant, self.name, self.counted)
