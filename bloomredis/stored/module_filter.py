"""A filter of the server's module with markers: what it is, how it is made, how items are tested."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, Final, cast

from bloomredis.bits.module_items import MADE, Marking, ModuleItems, marking
from bloomredis.errors import FilterMismatchError, ServerRefusedError
from bloomredis.protocol import replies
from bloomredis.protocol.replies import Refusal
from bloomredis.stored.handle import Description, Handle, ttl_seconds
from bloomredis.stored.header import Header
from bloomredis.stored.module_header import Link, ModuleState

_GROWTH: Final = 2


@dataclass(frozen=True, slots=True)
class MarkedFilter:
    """A filter with markers."""

    state: ModuleState
    generation: bytes
    kind: bytes
    is_encoded: bool

    @property
    def marking(self) -> Marking:
        return marking(self.state.error_rate)

    @property
    def marks(self) -> int:
        """The number of items that mark it."""
        return self.marking.total(encoded=self.is_encoded)

    @property
    def head(self) -> Header:
        """Its parameters, as one header; a filter that was made here has room for its own items besides."""
        first, state = self.state.links[0], self.state
        room = state.entries - (self.marks if self.kind == MADE else 0)
        return Header(
            layout=ModuleItems.name,
            num_hashes=first.num_hashes,
            num_bits=sum(link.num_bits for link in state.links),
            capacity=room,
            error_rate=state.error_rate,
            generation=self.generation,
            count=max(0, state.items - self.marks),
        )

    def described(self, key: bytes) -> list[Description]:
        """Return a description of each bitmap, the newest first."""
        ttl, descriptions = ttl_seconds(self.state.ttl), []
        for i, link in enumerate(self.state.links):
            header = replace(self.head, num_hashes=link.num_hashes, num_bits=link.num_bits)
            if i:
                header = replace(header, capacity=link.entries, count=link.items)
            else:
                header = replace(header, count=max(0, link.items - self.marks))
            descriptions.append(Description(key, header, link.num_bits // 8, 0, ttl, has_bits=False))
        return descriptions[::-1]


def new_options(capacity: int, error_rate: float, *, encoded: bool) -> list[bytes | int | str]:
    """Return the options of BF.INSERT that make a new filter."""
    return _options(capacity + marking(error_rate).total(encoded=encoded), error_rate, _GROWTH)


def _options(entries: int, error_rate: float, growth: int) -> list[bytes | int | str]:
    rest: list[bytes | int | str] = ["EXPANSION", growth] if growth else ["NONSCALING"]
    return ["CAPACITY", entries, "ERROR", repr(error_rate), *rest]


def first_link(capacity: int, error_rate: float) -> Link:
    """Return the first bitmap that RedisBloom makes: in one that may grow, for half the rate."""
    entries, rate = capacity + marking(error_rate).total(encoded=False), error_rate / 2
    per_entry = -math.log(rate) / math.log(2) ** 2
    bits = -(-int(entries * per_entry) // 64) * 64
    return Link(bits, math.ceil(math.log(2) * per_entry), entries, rate, 0)


def options(state: ModuleState) -> list[bytes | int | str]:
    """Return the options of BF.INSERT that make another filter like this one."""
    return _options(state.entries, state.error_rate, state.growth)


def test_command(handle: Handle, items: Sequence[str | bytes]) -> tuple[Any, ...]:
    """Return the command that tests items and markers in one step."""
    return ("BF.MEXISTS", handle.key, *items, *cast("ModuleItems", handle.layout).markers)


def answers_of(reply: Sequence[Any], count: int) -> list[bool] | None:
    """Return the answers to `count` items in a reply to `test_command`; None if a marker is missing."""
    return list(map(bool, reply[:count])) if all(reply[count:]) else None


@contextmanager
def other_layout(error: FilterMismatchError) -> Iterator[str]:
    """Yield the layout of filters that are no strings if a key was refused for that; else raise the error.

    On a server without the module it is no filter of it, so the first error stays.
    """
    if not isinstance(error.__cause__, Refusal) or error.__cause__.word != replies.WRONG_TYPE:
        raise error
    try:
        yield ModuleItems.name
    except ServerRefusedError as refused:
        if refused.word != replies.MODULE:
            raise
        raise error from error.__cause__
