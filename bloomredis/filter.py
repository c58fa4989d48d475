"""What a filter does, as operations without I/O.

The stored filter says itself what it is (`header`), and every script call carries the header that
this object knows.  So there are three states: not opened yet, opened, and lost, which lasts until
the caller has taken notice (`FilterLostError`).
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from bloomredis import hashing, header, layouts, protocol, scripts, sizing
from bloomredis.errors import FilterLostError, FilterMismatchError, FilterNotFoundError
from bloomredis.hashing import Item
from bloomredis.header import Header
from bloomredis.layouts import Layout
from bloomredis.protocol import Op, Refusal

PROBES_A_CALL: Final = 3000
"""Probes that one script makes at most: 2 ms on the slowest server measured (0.67 us each, Redis 7.0)."""

_BITCOUNT_BYTES: Final = 4 << 20  # counted at a time, under 2 ms
_LONGEST_TTL: Final = 2**52  # milliseconds; 140,000 years, and exact in Lua


@dataclass(frozen=True, slots=True, kw_only=True)
class FilterInfo:
    """What a filter is and how full it is.

    `count` is the exact number of items that were new, `approximate_count` an estimate from the
    share of bits set (`fill_ratio`), `estimated_error_rate` the false-positive rate to expect now.
    `size_bytes` is the length of the stored string, `ttl` the seconds left to live (None: for ever),
    `generation` the hex name that changes whenever the filter is created or cleared.
    """

    name: str
    layout: str
    capacity: int
    error_rate: float
    num_bits: int
    num_hashes: int
    size_bytes: int
    count: int
    fill_ratio: float
    approximate_count: int
    estimated_error_rate: float
    ttl: float | None
    generation: str
    created_at: datetime


@dataclass(frozen=True, slots=True)
class _Stored:
    """A filter as the server described it."""

    header: Header
    size_bytes: int
    ttl: float | None


@dataclass(frozen=True, slots=True)
class _Opened:
    """What every call needs of a filter that has been checked."""

    identity: bytes
    layout: Layout
    step: int  # packed bytes that one script call takes at most


class FilterOperations:
    """A Bloom filter in one key of a Redis or Valkey server.

    Of any number of concurrent `add(x)`, in any number of threads, processes and machines, exactly
    one is told that x was new.  An item that was added is always found; one that was not is taken
    for present with a probability of about `error_rate` once `capacity` items are in.

    :param client: a client of redis-py or valkey-py; nothing is sent before the first call.
    :param name: the key.
    :param capacity: items that the filter is made for.  With `capacity` and `error_rate` a missing
        filter is created at first use and a stored one is checked; without, it must exist.
    :param error_rate: the false-positive rate at `capacity`, strictly between 0 and 1.
    :param layout: `"classic"`, or None for what is stored (a new filter gets the default).
    :param ttl: seconds (or a timedelta) from creation until the filter expires; None for never.
    :param encode: turns an item into bytes, for items that are not str, bytes or int.
    :raises ValueError, TypeError: for bad arguments, before any I/O.
    """

    def __init__(
        self,
        name: str,
        *,
        capacity: int | None = None,
        error_rate: float | None = None,
        layout: str | None = None,
        ttl: float | timedelta | None = None,
        encode: Callable[[Any], bytes] | None = None,
    ) -> None:
        self.name = _checked_name(name)
        self._key = self.name.encode()
        self._new = _template(capacity, error_rate, layout)
        self._layout_name = layout
        self._ttl = 0 if ttl is None else _milliseconds(ttl)
        if ttl is not None and self._new is None:
            raise ValueError(
                "ttl counts from creation, so it needs capacity and error_rate; or call expire()"
            )
        self._custom_encode = encode
        self._opened: _Opened | None = None
        self._lost: str | None = None

    # -- items

    def add(self, item: Item) -> Op[bool]:
        """Add an item; True if this call was the first to add it.

        Exactly one of any number of concurrent callers gets True.  One round trip.
        """
        return (yield from self._probe_one(_ADD, item))

    def contains(self, item: Item) -> Op[bool]:
        """Return whether an item is in the filter: False is certain, True errs at the error rate.

        One round trip.
        """
        return (yield from self._probe_one(_CONTAINS, item))

    def add_many(self, items: Iterable[Item]) -> Op[list[bool]]:
        """Add items; say of each, in order, whether it was new.

        The first of two equal items is new, the second is not.  A batch is cut so that no script
        runs longer than about 2 ms; each script is atomic, the batch as a whole is not.  All items
        are checked before the first is sent, so an iterator is read to its end at once.
        """
        return (yield from self._probe_many(_ADD, items))

    def contains_many(self, items: Iterable[Item]) -> Op[list[bool]]:
        """Say of each of the items, in order, whether it is in the filter."""
        return (yield from self._probe_many(_CONTAINS, items))

    def _probe_one(self, script: scripts.Script, item: Item) -> Op[bool]:
        encoded = self._encode(item)
        opened = self._opened or (yield from self._open())
        reply = yield from self._run(script, opened.identity, opened.layout.pack_one(encoded))
        return reply in (b"1", "1")

    def _probe_many(self, script: scripts.Script, items: Iterable[Item]) -> Op[list[bool]]:
        encoded = self._encode_all(items)
        if not encoded:
            return []
        opened = self._opened or (yield from self._open())
        packed = opened.layout.pack(encoded)
        answers: list[bool] = []
        for start in range(0, len(packed), opened.step):
            reply = yield from self._run(script, opened.identity, packed[start : start + opened.step])
            answers += _flags(reply)
        return answers

    def _encode(self, item: Item) -> bytes:
        if self._custom_encode is None:
            return hashing.encode(item)
        encoded = self._custom_encode(item)
        if not isinstance(encoded, bytes):
            raise TypeError(f"encode must return bytes, not {type(encoded).__name__} for {item!r}")
        return encoded

    def _encode_all(self, items: Iterable[Item]) -> Sequence[str | bytes]:
        if isinstance(items, str | bytes | bytearray | memoryview):
            raise TypeError(f"items must be an iterable of items, not one {type(items).__name__}: {items!r}")
        batch = list(items)
        if self._custom_encode is None:
            return hashing.encode_all(batch)
        return [self._encode(item) for item in batch]

    # -- the filter as a whole

    def reserve(self) -> Op[None]:
        """Create the filter now, or check the stored one.

        After a `FilterLostError` this takes notice of the loss: the filter that is there now, or a
        new one, is used from here on.

        :raises FilterMismatchError: the key holds something else; it is left untouched.
        :raises FilterNotFoundError: it does not exist, and there are no parameters to create it.
        """
        self._lost = None
        yield from self._open()

    def info(self) -> Op[FilterInfo]:
        """Return the filter's parameters and how full it is.

        Costs a BITCOUNT over the whole filter, cut in pieces of under 2 ms.
        """
        stored = yield from self._current()
        ones = yield from self._ones(stored)
        head = stored.header
        fill = ones / head.num_bits
        return FilterInfo(
            name=self.name,
            layout=head.layout,
            capacity=head.capacity,
            error_rate=head.error_rate,
            num_bits=head.num_bits,
            num_hashes=head.num_hashes,
            size_bytes=stored.size_bytes,
            count=head.count,
            fill_ratio=fill,
            approximate_count=sizing.approximate_count(ones, head.num_bits, head.num_hashes),
            estimated_error_rate=sizing.expected_error_rate(fill, head.num_hashes),
            ttl=stored.ttl,
            generation=head.generation.hex(),
            created_at=datetime.fromtimestamp(head.created_at / 1e6, UTC),
        )

    def approximate_count(self) -> Op[int]:
        """Estimate the number of items from the share of bits set; costs what `info` does."""
        stored = yield from self._current()
        ones = yield from self._ones(stored)
        return sizing.approximate_count(ones, stored.header.num_bits, stored.header.num_hashes)

    def clear(self) -> Op[None]:
        """Empty the filter: a new generation with the same parameters and the same expiry.

        Other clients notice at their next call (`FilterLostError`).  A missing filter is created.
        """
        self._lost = None
        try:
            reply = yield from self._replace(
                _CLEAR, lambda head: [replace(head, generation=os.urandom(8)).pack()]
            )
        except FilterNotFoundError:
            yield from self._open()
        else:
            self._opened = _opened(self._read(reply).header)

    def delete(self) -> Op[bool]:
        """Delete the filter; True if it existed.  This object's next call may create it again.

        :raises FilterMismatchError: the key holds something else; it is left untouched.
        """
        self._opened = self._lost = None
        try:
            yield from self._replace(_DELETE, lambda _: [])
        except FilterNotFoundError:
            return False
        return True

    def expire(self, seconds: float | timedelta) -> Op[None]:
        """Let everything that the filter stores expire that many seconds (or a timedelta) from now."""
        ttl = _milliseconds(seconds)
        opened = self._opened or (yield from self._open())
        yield from self._run(_EXPIRE, opened.identity, ttl)

    # -- between this object and the server

    def _open(self) -> Op[_Opened]:
        if self._lost:
            raise FilterLostError(self._lost)
        stored = yield from self._reserve()
        self._opened = _opened(stored.header)
        return self._opened

    def _reserve(self) -> Op[_Stored]:
        if self._new is None:
            return (yield from self._describe())
        template = replace(self._new, generation=os.urandom(8)).pack()
        try:
            reply = yield from protocol.call(_RESERVE, [self._key], [template, self._ttl])
        except Refusal as refusal:
            raise self._explained(refusal) from refusal
        return self._read(reply)

    def _describe(self) -> Op[_Stored]:
        try:
            reply = yield from protocol.call(_DESCRIBE, [self._key], [])
        except Refusal as refusal:
            raise self._explained(refusal) from refusal
        return self._read(reply)

    def _current(self) -> Op[_Stored]:
        """What is stored now, if it is still the filter that this object knows."""
        opened = self._opened or (yield from self._open())
        try:
            stored = yield from self._describe()
        except (FilterNotFoundError, FilterMismatchError) as error:
            raise self._notice_loss(str(error)) from error
        if stored.header.identity != opened.identity:
            raise self._notice_loss(f"{self.name!r} was cleared or replaced")
        return stored

    def _replace(self, script: scripts.Script, arguments: Callable[[Header], list[bytes]]) -> Op[Any]:
        """Run a script on whatever generation is stored, which may change in between."""
        while True:
            stored = yield from self._describe()
            try:
                return (
                    yield from protocol.call(
                        script, [self._key], [stored.header.identity, *arguments(stored.header)]
                    )
                )
            except Refusal as refusal:
                if refusal.word not in (protocol.CHANGED, protocol.MISSING):
                    raise self._explained(refusal) from refusal

    def _run(self, script: scripts.Script, identity: bytes, argument: bytes | int) -> Op[Any]:
        """Run a script on the generation that this object knows, or notice that it is gone."""
        try:
            return (yield from protocol.call(script, [self._key], [identity, argument]))
        except Refusal as refusal:
            raise self._notice_loss(_LOSSES[refusal.word].format(name=self.name)) from refusal

    def _notice_loss(self, what: str) -> FilterLostError:
        self._opened = None
        self._lost = (
            f"{what} since this object first used it; what was added before is forgotten. "
            "Call reserve() to go on with what is there now, or clear() to start empty"
        )
        return FilterLostError(self._lost)

    def _ones(self, stored: _Stored) -> Op[int]:
        ones = 0
        for start in range(header.HEADER_BYTES, stored.size_bytes, _BITCOUNT_BYTES):
            ones += yield ("BITCOUNT", self._key, start, start + _BITCOUNT_BYTES - 1)
        return ones

    def _read(self, reply: Sequence[Any]) -> _Stored:
        text, size, ttl = reply
        try:
            head = header.parse(bytes.fromhex(text if isinstance(text, str) else text.decode()))
        except ValueError as error:
            raise FilterMismatchError(
                f"{self.name!r} is no filter that this release can use: {error}"
            ) from None
        if size != head.size_bytes:
            raise FilterMismatchError(
                f"{self.name!r} is damaged: it has {size} bytes, its header says {head.size_bytes}; "
                "delete the key or restore it"
            )
        self._check_parameters(head)
        return _Stored(header=head, size_bytes=size, ttl=ttl / 1000 if ttl >= 0 else None)

    def _check_parameters(self, found: Header) -> None:
        wanted: dict[str, object] = {}
        if self._new is not None:
            wanted |= {"capacity": self._new.capacity, "error_rate": self._new.error_rate}
        if self._layout_name is not None:
            wanted["layout"] = self._layout_name
        for field, value in wanted.items():
            if getattr(found, field) != value:
                raise FilterMismatchError(
                    f"{self.name!r} holds {field} {getattr(found, field)!r}, not {value!r}; open it with "
                    "BloomFilter.open(), which takes what is stored, or use another name"
                )

    def _explained(self, refusal: Refusal) -> FilterNotFoundError | FilterMismatchError:
        if refusal.word == protocol.MISSING:
            return FilterNotFoundError(
                f"there is no filter {self.name!r}; give capacity and error_rate to create it"
            )
        return FilterMismatchError(f"{self.name!r} holds no Bloom filter ({refusal}); use another name")


_ADD, _CONTAINS, _RESERVE, _DESCRIBE, _CLEAR, _DELETE, _EXPIRE = map(
    scripts.load, ("add", "contains", "reserve", "describe", "clear", "delete", "expire")
)
_LOSSES: Final = {
    protocol.MISSING: "{name!r} has vanished (expired, evicted, flushed or deleted)",
    protocol.CHANGED: "{name!r} was cleared or replaced",
    protocol.FOREIGN: "{name!r} was overwritten with something that is no filter",
    protocol.WRONG_TYPE: "{name!r} was overwritten with a key of another type",
}


def _opened(head: Header) -> _Opened:
    layout = layouts.stored(head)
    items = max(1, PROBES_A_CALL // layout.num_hashes)
    return _Opened(identity=head.identity, layout=layout, step=items * layout.item_bytes)


def _template(capacity: int | None, error_rate: float | None, layout: str | None) -> Header | None:
    """Return the header of a new filter with these parameters, None if there are none."""
    if layout is not None:
        layouts.check_name(layout)
    if capacity is None and error_rate is None:
        return None
    if capacity is None or error_rate is None:
        missing = "capacity" if capacity is None else "error_rate"
        raise ValueError(f"capacity and error_rate go together; {missing} is missing")
    count = sizing.checked_capacity(capacity)
    rate = sizing.checked_error_rate(error_rate)
    planned = layouts.plan(layout or layouts.DEFAULT, count, rate)
    return Header(
        layout=planned.name,
        num_hashes=planned.num_hashes,
        num_bits=planned.num_bits,
        capacity=count,
        error_rate=rate,
        generation=bytes(8),
    )


def _checked_name(name: str) -> str:
    if not isinstance(name, str):
        raise TypeError(f"name must be a str, not {type(name).__name__} {name!r}")
    if not name:
        raise ValueError("name must not be empty, got ''")
    return name


def _milliseconds(seconds: float | timedelta) -> int:
    if isinstance(seconds, timedelta):
        seconds = seconds.total_seconds()
    if isinstance(seconds, bool) or not isinstance(seconds, int | float):
        raise TypeError(f"a time to live is a number of seconds or a timedelta, not {seconds!r}")
    if not 0 < seconds * 1000 <= _LONGEST_TTL:
        raise ValueError(f"a time to live must be more than 0 seconds (and finite), not {seconds}")
    return math.ceil(seconds * 1000)


def _flags(reply: bytes | str) -> list[bool]:
    text = reply.encode() if isinstance(reply, str) else reply
    return [answer == 49 for answer in text]  # 49 is "1"
