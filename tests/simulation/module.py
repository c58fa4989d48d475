"""The commands BF.* of a server's module, over filters that never err: they store the items themselves."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from tests.simulation.database import WRONG_TYPE, Database, Number, Reply, ServerError

COMMANDS: Final = ("bf.insert", "bf.add", "bf.madd", "bf.exists", "bf.mexists", "bf.info")


class Items(NamedTuple):
    """An immutable value."""

    capacity: int
    error_rate: bytes
    expansion: int
    items: frozenset[bytes]

    @property
    def filters(self) -> list[int]:
        """The capacities of its filters, each larger than the one before by the same factor."""
        found = [self.capacity]
        while sum(found) < len(self.items):
            found.append(found[-1] * self.expansion)
        return found


_BY_ITSELF: Final = Items(100, b"0.01", 2, frozenset())
"""The filter that an add creates under a missing key."""


class Module:
    """The commands over the values of a database, with a public method for each."""

    def __init__(self, data: Database) -> None:
        self._data = data

    def insert(self, key: bytes, *options: Number) -> Reply:
        rest = [bytes(option) if isinstance(option, bytes) else b"%d" % option for option in options]
        at = rest.index(b"ITEMS")
        given = dict(zip(rest[:at:2], rest[1:at:2], strict=True))
        made = Items(int(given[b"CAPACITY"]), given[b"ERROR"], int(given[b"EXPANSION"]), frozenset())
        return self._added(key, rest[at + 1 :], made)

    def add(self, key: bytes, item: bytes) -> Reply:
        return self._added(key, [item], _BY_ITSELF)[0]

    def madd(self, key: bytes, *items: bytes) -> Reply:
        return self._added(key, items, _BY_ITSELF)

    def exists(self, key: bytes, item: bytes) -> Reply:
        return self.mexists(key, item)[0]

    def mexists(self, key: bytes, *items: bytes) -> tuple[int, ...]:
        value = self._data.find(key)
        there = value.items if isinstance(value, Items) else frozenset()
        return tuple([int(item in there) for item in items])

    def info(self, key: bytes) -> Reply:
        value = self._found(key)
        if value is None:
            raise ServerError("ERR not found")
        return (
            *(b"Capacity", sum(value.filters), b"Size", 1000, b"Number of filters", len(value.filters)),
            *(b"Number of items inserted", len(value.items), b"Error rate", value.error_rate),
            *(b"Expansion rate", value.expansion),
        )

    def _found(self, key: bytes) -> Items | None:
        value: Any = self._data.find(key)
        if value is not None and not isinstance(value, Items):
            raise ServerError(WRONG_TYPE)
        return value

    def _added(self, key: bytes, items: Any, made: Items) -> tuple[int, ...]:
        value = self._found(key) or made
        there, answers = set(value.items), []
        for item in items:
            answers.append(int(item not in there))
            there.add(item)
        self._data.values[key] = value._replace(items=frozenset(there))
        return tuple(answers)
