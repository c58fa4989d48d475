"""The state of a filter in a key of the server's Bloom filter module, as the module describes it.

RedisBloom's header, the first reply of `BF.SCANDUMP`, has the size of each *link*: a bitmap of the filter, of
which the newest takes new items.  The module of Valkey has no such command; there the sizes are computed
from the reply of `BF.INFO`.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence
from hashlib import blake2b
from typing import Any, Final, NamedTuple

from bloomredis.bits.sizing import classic_bits, num_hashes
from bloomredis.protocol import forms
from bloomredis.protocol.steps import Reply

CHAIN: Final = struct.Struct("<QIII")  # items, links, options, growth
LINK: Final = struct.Struct("<QQQddIQB")  # bytes, bits, items, error, bits per entry, hashes, entries, n2


class Link(NamedTuple):
    """One bitmap of the module: its size, its capacity and error rate, and the new items that it took."""

    num_bits: int
    num_hashes: int
    entries: int
    error_rate: float
    items: int


class ModuleState(NamedTuple):
    """A filter as the module describes it.

    :ivar entries: the capacity that the filter was reserved with; `error_rate` is likewise.
    :ivar growth: the factor by which each link is larger than the one before; 0 for a filter that refuses
        items when it is full.
    :ivar ttl: in milliseconds, negative for none.
    """

    links: tuple[Link, ...]  # the oldest first
    entries: int
    error_rate: float
    growth: int
    size_bytes: int
    ttl: int

    @property
    def items(self) -> int:
        """The number of new items that the filter took, its markers included."""
        return sum(link.items for link in self.links)

    @property
    def sizes(self) -> bytes:
        """A digest of the sizes of the links."""
        return blake2b(repr([link[:-1] for link in self.links]).encode(), digest_size=8).digest()

    def has_room(self, count: int) -> bool:
        """Return whether the filter takes so many new items."""
        return self.growth > 0 or self.items + count <= self.entries


def read_state(ttl: int, info: Sequence[Reply], dump: str | bytes) -> ModuleState:
    """Return the state in the replies of PTTL, `BF.INFO` and `BF.SCANDUMP`; `ValueError` if malformed."""
    named = zip(map(forms.text, info[::2]), info[1::2], strict=True)
    facts: dict[str, Any] = {_text(name): value for name, value in named}
    try:
        growth = int(facts["Expansion rate"] or 0)
        links, rate = (
            _links(dump.encode("latin-1") if isinstance(dump, str) else dump, growing=growth > 0)
            if dump
            else _sized(facts, growth)
        )
        size = int(facts["Size"])
    except (KeyError, TypeError, struct.error) as error:
        raise ValueError(f"the server's module describes it in an unknown way: {error}") from None
    return ModuleState(
        links=links,
        entries=links[0].entries,
        error_rate=rate,
        growth=growth,
        size_bytes=size,
        ttl=ttl,
    )


def _text(name: str | bytes) -> str:
    return name if isinstance(name, str) else name.decode()


def _links(header: bytes, *, growing: bool) -> tuple[tuple[Link, ...], float]:
    """Read RedisBloom's header; the first link of a growing filter has half the filter's rate."""
    links = tuple(
        Link(bits, hashes, entries, error, items)
        for _, bits, items, error, _, hashes, entries, _ in LINK.iter_unpack(header[CHAIN.size :])
    )
    return links, links[0].error_rate * (2 if growing else 1)


def _sized(facts: dict[str, Any], growth: int) -> tuple[tuple[Link, ...], float]:
    """Compute the links of Valkey's module; each has `growth` times the last's entries, at a lower rate."""
    count, rate = int(facts["Number of filters"]), float(facts["Error rate"])
    tightening = float(facts.get("Tightening ratio") or 0.5)
    shares = [max(1, growth) ** i for i in range(count)]
    entries, left = int(facts["Capacity"]) // sum(shares), int(facts["Number of items inserted"])
    links = []
    for i, share in enumerate(shares):
        most, error = entries * share, rate * tightening**i
        items = left if i == count - 1 else min(left, most)
        left -= items
        bits = classic_bits(most, error)
        links.append(Link(math.ceil(bits), num_hashes(bits, most), most, error, items))
    return tuple(links), rate
