"""The data of a server: strings and hashes that expire, and the commands that the scripts use."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NamedTuple

Number = int | bytes
"""A number as a script or a client sends it."""

Reply = int | bytes | None | tuple[Any, ...]


class ServerError(Exception):
    """An error reply: its text, which begins with its code."""


class Snapshot(NamedTuple):
    """All data at one moment; values are immutable."""

    values: dict[bytes, Any]
    deadlines: dict[bytes, int]


WRONG_TYPE: Final = "WRONGTYPE Operation against a key holding the wrong kind of value"
_NOT_INTEGER: Final = "ERR value is not an integer or out of range"


class Database:
    """Values by key, their times of expiry in milliseconds, and a clock in microseconds.

    A public method in lower case is the command of that name. Replies are int, bytes, None or a tuple.
    """

    def __init__(self, now: int) -> None:
        self.now = now
        self.values: dict[bytes, Any] = {}
        self.deadlines: dict[bytes, int] = {}

    def snapshot(self) -> Snapshot:
        """Return a copy of all data."""
        return Snapshot(dict(self.values), dict(self.deadlines))

    def restore(self, data: Snapshot) -> None:
        """Restore the data of a snapshot; the clock does not go back."""
        self.values, self.deadlines = dict(data.values), dict(data.deadlines)

    def alive(self) -> list[bytes]:
        """Return the keys that have not expired, in the order of their creation."""
        return [key for key in list(self.values) if self.find(key) is not None]

    def find(self, key: bytes) -> Any:
        """Return a value, or None if it is missing or has expired."""
        deadline = self.deadlines.get(key)
        if deadline is not None and deadline * 1000 <= self.now:
            del self.values[key], self.deadlines[key]
            return None
        return self.values.get(key)

    def text(self, key: bytes) -> bytes:
        """Return a string, empty if it is missing."""
        value = self.find(key)
        if value is None:
            return b""
        if type(value) is not bytes:
            raise ServerError(WRONG_TYPE)
        return value

    def remove(self, key: bytes) -> bool:
        """Remove a key; return whether it existed."""
        if self.find(key) is None:
            return False
        del self.values[key]
        self.deadlines.pop(key, None)
        return True

    # -- strings

    def get(self, key: bytes) -> Reply:
        return None if self.find(key) is None else self.text(key)

    def set(self, key: bytes, value: Number, *options: Number) -> Reply:
        is_there = self.find(key) is not None
        rest, deadline, keep, skip = list(options), None, False, False
        old: Reply = b"OK"
        while rest:
            option = bytes(rest.pop(0)).upper()
            if option == b"KEEPTTL":
                keep = True
            elif option in (b"XX", b"NX"):
                skip = is_there == (option == b"NX")
            elif option == b"GET":
                old = self.get(key)
            elif option in _DEADLINES:
                deadline = _DEADLINES[option](self.now, int(rest.pop(0)))
            else:
                raise ServerError("ERR syntax error")
        if skip:
            return None
        if not keep:
            self.deadlines.pop(key, None)
        self.values[key] = _bytes(value)
        if deadline is not None:
            self.deadlines[key] = deadline
        return old

    def getrange(self, key: bytes, first: Number, last: Number) -> Reply:
        return self._piece(key, first, last)

    def _piece(self, key: bytes, first: Number, last: Number) -> bytes:
        value = self.text(key)
        start, stop = int(first), int(last)
        if start >= 0 <= stop:
            return value[start : stop + 1]
        return value[max(0, _index(start, value)) : max(0, _index(stop, value) + 1)]

    def setrange(self, key: bytes, first: Number, piece: Number) -> Reply:
        value, start, put = self.text(key), int(first), _bytes(piece)
        if start < 0:
            raise ServerError("ERR offset is out of range")
        if put:
            self.values[key] = value[:start].ljust(start, b"\0") + put + value[start + len(put) :]
        return max(len(value), start + len(put)) if put else len(value)

    def strlen(self, key: bytes) -> Reply:
        return len(self.text(key))

    def incr(self, key: bytes) -> Reply:
        value = b"0" if self.find(key) is None else self.text(key)
        if not value.removeprefix(b"-").isdigit() or b"%d" % int(value) != value:
            raise ServerError(_NOT_INTEGER)
        self.values[key] = b"%d" % (int(value) + 1)
        return int(value) + 1

    # -- bits

    def getbit(self, key: bytes, offset: Number) -> Reply:
        at = int(offset)
        byte = self.text(key)[at >> 3 : (at >> 3) + 1]
        return byte[0] >> (7 - (at & 7)) & 1 if byte else 0

    def setbit(self, key: bytes, offset: Number, bit: Number) -> Reply:
        at = int(offset)
        value = bytearray(self.text(key).ljust((at >> 3) + 1, b"\0"))
        mask = 0x80 >> (at & 7)
        old = value[at >> 3]
        value[at >> 3] = old | mask if int(bit) else old & ~mask
        self.values[key] = bytes(value)
        return 1 if old & mask else 0

    def bitcount(self, key: bytes, *span: Number) -> Reply:
        if span:
            first, last = span
            return int.from_bytes(self._piece(key, first, last), "big").bit_count()
        return int.from_bytes(self.text(key), "big").bit_count()

    def bitop(self, how: bytes, target: bytes, *sources: bytes) -> Reply:
        if how.upper() != b"OR":
            raise ServerError("ERR only OR is simulated")
        values = [self.text(source) for source in sources]
        size = max(map(len, values))
        united = 0
        for value in values:
            united |= int.from_bytes(value.ljust(size, b"\0"), "big")
        self.remove(target)
        if size:
            self.values[target] = united.to_bytes(size, "big")
        return size

    def bitfield(self, key: bytes, *words: Number) -> Reply:
        """Get and increment unsigned fields of four bits, each at a multiple of its size."""
        value, replies = bytearray(self.text(key)), []
        rest, overflow, written = list(words), b"WRAP", False
        while rest:
            verb = bytes(rest.pop(0)).upper()
            if verb == b"OVERFLOW":
                overflow = bytes(rest.pop(0)).upper()
                continue
            kind, place = rest.pop(0), _bytes(rest.pop(0))
            if kind != b"u4" or not place.startswith(b"#") or verb not in (b"GET", b"INCRBY"):
                raise ServerError("ERR only GET and INCRBY of u4 at #n are simulated")
            field = int(place[1:])
            now = _nibble(value, field)
            if verb == b"INCRBY":
                now, written = _raised(now, int(rest.pop(0)), overflow), True
                _put_nibble(value, field, now)
            replies.append(now)
        if written:
            self.values[key] = bytes(value)
        return tuple(replies)

    # -- hashes

    def hget(self, key: bytes, field: bytes) -> Reply:
        value: bytes | None = self._fields(key).get(field)
        return value

    def hset(self, key: bytes, *pairs: Number) -> Reply:
        fields = self._fields(key)
        before = len(fields)
        put = {_bytes(name): _bytes(value) for name, value in zip(pairs[::2], pairs[1::2], strict=True)}
        self.values[key] = fields | put
        return len(fields | put) - before

    def _fields(self, key: bytes) -> dict[bytes, bytes]:
        value = self.find(key)
        if value is not None and not isinstance(value, dict):
            raise ServerError(WRONG_TYPE)
        return value or {}

    # -- keys

    def exists(self, *keys: bytes) -> Reply:
        return sum(self.find(key) is not None for key in keys)

    def unlink(self, *keys: bytes) -> Reply:
        return sum(map(self.remove, keys))

    def rename(self, key: bytes, name: bytes) -> Reply:
        value = self.find(key)
        if value is None:
            raise ServerError("ERR no such key")
        deadline = self.deadlines.get(key)
        self.remove(key)
        self.remove(name)
        self.values[name] = value
        if deadline is not None:
            self.deadlines[name] = deadline
        return b"OK"

    def pttl(self, key: bytes) -> Reply:
        if self.find(key) is None:
            return -2
        deadline = self.deadlines.get(key)
        return -1 if deadline is None else deadline - self.now // 1000

    def persist(self, key: bytes) -> Reply:
        return int(self.find(key) is not None and self.deadlines.pop(key, None) is not None)

    def pexpire(self, key: bytes, milliseconds: Number) -> Reply:
        return self.pexpireat(key, self.now // 1000 + int(milliseconds))

    def pexpireat(self, key: bytes, deadline: Number) -> Reply:
        if self.find(key) is None:
            return 0
        self.deadlines[key] = int(deadline)
        self.find(key)
        return 1

    def time(self) -> Reply:
        return b"%d" % (self.now // 1_000_000), b"%d" % (self.now % 1_000_000)

    def flushall(self) -> Reply:
        self.values.clear()
        self.deadlines.clear()
        return b"OK"


_DEADLINES: Final[dict[bytes, Callable[[int, int], int]]] = {
    b"PX": lambda now, value: now // 1000 + value,
    b"EX": lambda now, value: now // 1000 + value * 1000,
    b"PXAT": lambda now, value: value,
}


def _bytes(value: float | bytes) -> bytes:
    """Return the server's form of a script's argument."""
    if isinstance(value, bytes):
        return value
    return b"%d" % value if isinstance(value, int) else b"%.17g" % value


def _index(place: int, value: bytes) -> int:
    return place if place >= 0 else len(value) + place


def _nibble(value: bytearray, field: int) -> int:
    byte = value[field >> 1] if field >> 1 < len(value) else 0
    return byte & 15 if field & 1 else byte >> 4


def _put_nibble(value: bytearray, field: int, number: int) -> None:
    at = field >> 1
    value.extend(bytes(max(0, at + 1 - len(value))))
    value[at] = value[at] & 0xF0 | number if field & 1 else value[at] & 0x0F | number << 4


def _raised(number: int, by: int, overflow: bytes) -> int:
    total = number + by
    return min(max(total, 0), 15) if overflow == b"SAT" else total & 15


def what_is(key: bytes) -> str:
    """Return the purpose of a key."""
    for what in ("receipt", "claim"):
        if b":%s:" % what.encode() in key:
            return what
    return "filter"
