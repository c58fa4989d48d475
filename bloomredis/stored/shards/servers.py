"""The record of a sharded filter, on one server or on each of several.

Of several servers the first has the record with its table, and each other one a copy without the table, with
its own place among the servers.  Copies are made before the record and say until it is stored that they wait
for it; only then are items added.  So a copy in use without a record says that the record was lost.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from operator import attrgetter
from typing import Final, NamedTuple, TypeVar, Unpack

from bloomredis.errors import FilterMismatchError, FilterNotFoundError, ServerRefusedError
from bloomredis.protocol import clock, forms, replies, scripts
from bloomredis.protocol.gather import at, gather, unless_failed
from bloomredis.protocol.steps import Op
from bloomredis.stored import encoding, planning
from bloomredis.stored.one_key.single import StoredFilter
from bloomredis.stored.shards import record as shard_record
from bloomredis.stored.shards.record import PREPARED, ShardRecord
from bloomredis.stored.state.base import Arguments

T = TypeVar("T")
RESERVE_RECORD: Final = scripts.load("reserve_record", forms.record)
SETTLE_RECORD: Final = scripts.load("settle_record", forms.integer)
_SHARED = ("capacity", "error_rate", "layout", "num_bits", "num_hashes")
_parameters = attrgetter(*(f"head.{name}" for name in _SHARED), "shards", "seed")


class Found(NamedTuple):
    """A record as it is stored.

    `ttl` is its time to live in ms, negative if it does not expire, and `asked` when it was asked for, by the
    monotonic clock.
    """

    record: ShardRecord
    table: list[bytes]
    ttl: int
    asked: float


class RecordServers(StoredFilter):
    """The servers that have the record or a copy of it."""

    def __init__(
        self,
        name: str,
        *,
        plan: Callable[..., ShardRecord] | None,
        layout: str | None,
        wanted: Mapping[str, int | None],
        **options: Unpack[planning.StorageOptions],
    ) -> None:
        self._plan = plan
        self._wanted: dict[str, object] = {key: value for key, value in wanted.items() if value is not None}
        super().__init__(name, new=None, layout=layout, kind=shard_record.KIND, **options)
        self.over(1)

    def over(self, servers: int) -> None:
        """Spread the shards over so many servers.  Raises `ValueError` if there are fewer shards."""
        self.servers = servers
        self._planned = self._plan(servers=servers).encoded(self.encoding or 0) if self._plan else None
        self._new = self._planned.head if self._planned else None

    def _on(self, place: int, operation: Op[T]) -> Op[T]:
        return at(place if self.servers > 1 else None, operation)

    def _ask(self, place: int, new: ShardRecord | None = None, replaced: bytes = b"") -> Op[Found]:
        """Return the record or copy at a place.

        :param new: is written first if the key is free or holds the identity `replaced`.
        """
        arguments: Arguments = [b"" if new is None else new.at(place).pack(), self._ttl, replaced]
        asked = clock.now()
        data, ttl = yield from self._on(
            place, self._call(RESERVE_RECORD, arguments, None if new is None else self.wait)
        )
        try:
            record, table = shard_record.parse(data)
        except ValueError as error:
            raise FilterMismatchError(f"{self.name!r} holds no sharded filter: {error}") from None
        return Found(record, table, ttl, asked)

    def _look(self, place: int, like: ShardRecord | None = None) -> Op[Found | None]:
        """Read and check the record or the copy at a place, None if there is none."""
        try:
            found = yield from self._ask(place)
        except FilterNotFoundError:
            return None
        self._check(found.record, place, like)
        return found

    def _copies(self, record: ShardRecord, *, is_new: bool) -> Op[None]:
        """Check the copies of a stored record, make missing ones, and let all say that it is stored."""
        seen = yield from self._look_at_copies(record)
        missing = [place for place, copy in seen.items() if copy is None]
        if missing and not is_new:
            self._tell(f"{self.name!r} has vanished from server {missing[0]} of {list(range(self.servers))}")
        made = yield from self._make_copies(record, missing)
        waiting = [
            self._on(place, self._as_known(SETTLE_RECORD, [self.key], [copy.record.head.identity]))
            for place, copy in {**seen, **made}.items()
            if copy is not None and copy.record.state == PREPARED
        ]
        if waiting and (yield from self._stored_generation()) == record.head.generation:
            try:
                unless_failed((yield from gather(waiting)))
            except ServerRefusedError as error:
                self._check_leaves(error)

    def _check_leaves(self, error: ServerRefusedError) -> None:
        """Raise a refusal, unless it is that of a user who only reads: others will do the work."""
        if error.word != replies.DENIED:
            raise error

    def _stored_generation(self) -> Op[bytes]:
        """Return the generation of the record that is stored now, b"" if there is none."""
        try:
            return (yield from self._ask(0)).record.head.generation
        except (FilterNotFoundError, FilterMismatchError):
            return b""

    def _prepare(self, record: ShardRecord, *, is_new: bool) -> Op[None]:
        """Make the copies of a record that is not there; it was lost if one of them is in use."""
        seen = yield from self._look_at_copies(record)
        if not is_new and _in_use(seen) and (yield from self._look(0)) is None:
            again = yield from self._look_at_copies(record)  # delete() takes them before the record
            if _in_use(seen) & _in_use(again):
                self._tell(f"{self.name!r} has vanished from server 0 of {list(range(self.servers))}")
        yield from self._make_copies(record, [place for place, copy in seen.items() if copy is None])

    def _look_at_copies(self, record: ShardRecord | None = None) -> Op[dict[int, Found | None]]:
        """Return the copies by their places.

        :param record: has the parameters that they must have.
        """
        places = range(1, self.servers)
        seen = unless_failed((yield from gather(self._look(place, record) for place in places)))
        return dict(zip(places, seen, strict=True))

    def _make_copies(self, record: ShardRecord, places: Sequence[int]) -> Op[dict[int, Found]]:
        made = unless_failed((yield from gather(self._ask(place, record) for place in places)))
        return dict(zip(places, made, strict=True))

    def _check(self, found: ShardRecord, place: int, like: ShardRecord | None) -> None:
        if (found.servers, found.place) != (self.servers, place):
            raise FilterMismatchError(
                f"{self.name!r} was made on {found.servers} servers, and the one in place {place} of "
                f"{self.servers} has its place {found.place} (counted from 0): give a client of each, in the "
                "order in which it was made"
            )
        self._check_parameters(found.head)
        encoding.check(self.name, found.head.encoding, self.encoding)
        self.compare({field: getattr(found, field) for field in self._wanted}, self._wanted)
        if like is not None and _parameters(found) != _parameters(like):
            raise FilterMismatchError(
                f"{self.name!r} is another filter on server {place}: it has {_parameters(found)}, not "
                f"{_parameters(like)}; delete the key there, or use another name"
            )


def _in_use(copies: Mapping[int, Found | None]) -> set[bytes]:
    """Return the identities of the copies that say that their record is stored."""
    return {copy.record.head.identity for copy in copies.values() if copy and copy.record.state != PREPARED}
