"""The members of a set that is imported: read by SSCAN, with a note of how far that has come.

A cursor is good for the process that gave it, whatever is added or removed meanwhile; so the note is one of
a run of the server, and of the filter that has what was read until then: another run, database, key or
generation of the filter does not find it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from hashlib import sha256
from typing import Any, Final

from bloomredis import BloomError
from bloomredis.cli.server import is_of_cluster
from bloomredis.protocol.keys import auxiliary_prefix

_COUNT: Final = 8192
"""Members that one SSCAN replies: 2 ms of the server."""
_READ_AHEAD: Final = 2
"""Replies that a thread reads while others are loaded; with more it gets in the way of that."""
_NOTE_SECONDS: Final = 86_400
_SAMPLE: Final = 16
"""Members of which one at least has to be there at the end."""


class Note:
    """A note beside a filter: the cursor up to which a set was loaded, and the members that were read.

    :param of: what it is only good for; another note has another key.
    """

    def __init__(self, client: Any, name: str, of: Sequence[str]) -> None:
        self._client = client
        digest = sha256("\n".join(map(repr, of)).encode()).hexdigest()
        self._key = auxiliary_prefix(name.encode()) + b"import:" + digest[:16].encode()

    def read(self) -> tuple[int, int]:
        """Return the cursor and the members; 0 and 0 for none."""
        kept = (self._client.get(self._key) or b"0 0").split()
        return int(kept[0]), int(kept[1])

    def write(self, cursor: int, members: int) -> None:
        """Keep them for a day."""
        self._client.set(self._key, f"{cursor} {members}", ex=_NOTE_SECONDS)

    def forget(self) -> None:
        """Delete it."""
        self._client.unlink(self._key)


class Members:
    """A set, or a sorted set, on its way into a filter.

    :param source: the client of its server, which replies with bytes.
    """

    def __init__(self, source: Any, key: str) -> None:
        self._source = source
        self._key = key
        if source.get_encoder().decode_responses:
            raise ValueError("leave decode_responses out of the URL: a member may be any bytes")
        self._is_sorted = self._checked_type() == b"zset"
        self._run = self._run_id()
        self._some = self._sample()
        self._note: Note | None = None
        self._ahead: deque[tuple[int, int]] = deque()  # members read so far in this run, and the cursor then
        self.count: int = source.zcard(key) if self._is_sorted else source.scard(key)
        self.before = 0  # members that earlier runs have loaded

    def go_on(self, client: Any, name: str, generation: str) -> None:
        """Begin where an interrupted import into this filter was, and keep a note for the next one.

        There is none where the filter has no generation, or the server does not give the id of its run.
        """
        if self._run and generation:
            database = getattr(self._source, "connection_pool", None)
            number = database.connection_kwargs.get("db", 0) if database is not None else 0
            self._note = Note(client, name, (self._run, str(number), self._key, generation))

    def items(self) -> Iterator[bytes]:
        """Yield all members, or those that an interrupted run has left; some may come twice."""
        cursor, self.before = self._note.read() if self._note else (0, 0)
        read = 0
        for after, found in self._replies(cursor):
            yield from found
            read += len(found)
            self._ahead.append((read, after))

    def _replies(self, cursor: int) -> Iterator[tuple[int, list[bytes]]]:
        """Yield replies of the scan, each with the cursor behind it; a thread reads some ahead."""
        after, is_done = cursor, False

        def scan() -> tuple[int, list[bytes]] | None:
            nonlocal after, is_done
            if is_done:
                return None
            after, found = self._scanned(after)
            is_done = not after
            return after, found

        thread = ThreadPoolExecutor(1)  # so they run one after the other
        try:
            ahead = deque(thread.submit(scan) for _ in range(_READ_AHEAD))
            while (reply := ahead.popleft().result()) is not None:
                ahead.append(thread.submit(scan))
                yield reply
        finally:
            thread.shutdown(cancel_futures=True)

    def note(self, done: int) -> None:
        """Note how far it has come: so many members that were yielded are in the filter."""
        cursor = None
        while self._ahead and self._ahead[0][0] <= done:
            read, cursor = self._ahead.popleft()
        if cursor and self._note:
            self._note.write(cursor, self.before + read)

    def forget(self) -> None:
        """Forget the note."""
        if self._note:
            self._note.forget()

    def check(self) -> None:
        """Raise `BloomError` unless it was one set, on one run of the server, from begin to end.

        A cursor has no sense on a server that was started meanwhile, and the client would not notice that.
        Of a set with other members in the place of all that were there, nothing is known either.
        """
        again = "while it was read, so members may be missing in the filter: run the command again"
        if self._run_id() != self._run:
            raise BloomError(f"the server of {self._key!r} was restarted or replaced {again}")
        if not any(map(self._has, self._some)):
            raise BloomError(f"{self._key!r} was deleted or replaced {again}")

    def _sample(self) -> list[bytes]:
        """Return some members; of a sorted set those that are removed last where it is trimmed."""
        found: list[bytes] = (
            self._source.zrange(self._key, -_SAMPLE, -1)
            if self._is_sorted
            else self._source.srandmember(self._key, _SAMPLE)
        )
        return found

    def _has(self, member: bytes) -> bool:
        if self._is_sorted:
            return self._source.zscore(self._key, member) is not None
        return bool(self._source.sismember(self._key, member))

    def _scanned(self, cursor: int) -> tuple[int, list[bytes]]:
        if not self._is_sorted:
            cursor, found = self._source.sscan(self._key, cursor, count=_COUNT)
            return cursor, list(found)
        cursor, pairs = self._source.zscan(self._key, cursor, count=_COUNT)
        return cursor, [member for member, _ in pairs]

    def _checked_type(self) -> bytes:
        kind: bytes = self._source.type(self._key)
        if kind == b"none":
            raise ValueError(f"there is no key {self._key!r} to import from")
        if kind not in (b"set", b"zset"):
            raise ValueError(f"{self._key!r} is a {kind.decode()}: --from-set takes a set or a sorted set")
        return kind

    def _run_id(self) -> str:
        """Return the id of the run of the server that has the set; empty where it may not be asked."""
        from redis.exceptions import ResponseError  # noqa: PLC0415 - for --help to be quick

        source: Any = self._source
        of = {"target_nodes": source.get_node_from_key(self._key)} if is_of_cluster(source) else {}
        with suppress(ResponseError):
            return str(source.info("server", **of).get("run_id", ""))
        return ""
