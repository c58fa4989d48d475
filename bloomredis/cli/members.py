"""The members of a set that is imported: read by SSCAN, with a note of how far that has come.

A cursor is good for the process that gave it, whatever is added or removed meanwhile; so the note has the
id of the server's run, and one of another run is of no use.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any, Final
from zlib import crc32

from bloomredis.cli.server import is_of_cluster
from bloomredis.protocol.keys import auxiliary_prefix

_COUNT: Final = 8192
"""Members that one SSCAN replies: 2 ms of the server."""
_READ_AHEAD: Final = 2
"""Replies that a thread reads while others are loaded; with more it gets in the way of that."""
_NOTE_SECONDS: Final = 86_400


class Members:
    """A set, or a sorted set, on its way into a filter.

    :param source: the client of its server.
    :param client: the client of the filter's, where the note is kept.
    """

    def __init__(self, source: Any, key: str, client: Any, name: str) -> None:
        self._source = source
        self._key = key
        self._client = client
        own = auxiliary_prefix(name.encode())
        self._note_key = own + b"import:%08x" % crc32(key.encode())
        self._is_sorted = self._checked_type() == b"zset"
        self._run = self._run_id()
        self._ahead: deque[tuple[int, int]] = deque()  # members read so far in this run, and the cursor then
        self.count: int = source.zcard(key) if self._is_sorted else source.scard(key)
        self.before = 0  # members that earlier runs have loaded

    def items(self) -> Iterator[bytes]:
        """Yield all members, or those that an interrupted run has left; some may come twice."""
        cursor, self.before = self._noted()
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
        if cursor and self._run:
            value = f"{self._run} {cursor} {self.before + read}"
            self._client.set(self._note_key, value, ex=_NOTE_SECONDS)

    def forget(self) -> None:
        """Forget the note."""
        self._client.unlink(self._note_key)

    def _noted(self) -> tuple[int, int]:
        kept = (self._client.get(self._note_key) or b"").split()
        if len(kept) != 3 or kept[0].decode() != self._run:
            return 0, 0
        return int(kept[1]), int(kept[2])

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
