"""The members of a set that is imported: read by SSCAN, with a stored note of the progress.

A cursor is valid only in the server process that returned it, even if members are added or removed meanwhile.
So the key of the note depends on the run of the server, the database, the key of the set and the generation
of the filter.  An import for which one of them differs does not find the note.
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
"""Members in a reply of SSCAN, which takes the server 2 ms."""
_READ_AHEAD: Final = 2
"""Replies that a thread reads ahead of the loading; more would slow the loading down."""
_NOTE_SECONDS: Final = 86_400
_SAMPLE: Final = 16
"""Members to remember; the set must still have one of them at the end."""


class Note:
    """A note beside a filter: the cursor up to which a set was loaded, and the number of members read.

    :param of: the values for which the note is valid; its key depends on them.
    """

    def __init__(self, client: Any, name: str, of: Sequence[str]) -> None:
        self._client = client
        digest = sha256("\n".join(map(repr, of)).encode()).hexdigest()
        self._key = auxiliary_prefix(name.encode()) + b"import:" + digest[:16].encode()

    def read(self) -> tuple[int, int]:
        """Return the cursor and the number of members; 0 and 0 without a note."""
        kept = (self._client.get(self._key) or b"0 0").split()
        return int(kept[0]), int(kept[1])

    def write(self, cursor: int, members: int) -> None:
        """Store the note for a day."""
        self._client.set(self._key, f"{cursor} {members}", ex=_NOTE_SECONDS)

    def forget(self) -> None:
        """Delete the note."""
        self._client.unlink(self._key)


class Members:
    """A set or a sorted set that is imported into a filter.

    :param source: a client of the set's server; its replies must be bytes.
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
        """Continue an interrupted import into this filter, and store notes so that this one can be continued.

        Do neither if the filter has no generation, or the server does not give the id of its run.
        """
        if self._run and generation:
            database = getattr(self._source, "connection_pool", None)
            number = database.connection_kwargs.get("db", 0) if database is not None else 0
            self._note = Note(client, name, (self._run, str(number), self._key, generation))

    def items(self) -> Iterator[bytes]:
        """Yield all members, or those that an interrupted run did not load; some may appear twice."""
        cursor, self.before = self._note.read() if self._note else (0, 0)
        read = 0
        for after, found in self._replies(cursor):
            yield from found
            read += len(found)
            self._ahead.append((read, after))

    def _replies(self, cursor: int) -> Iterator[tuple[int, list[bytes]]]:
        """Yield the replies of the scan, each with the next cursor; a thread reads some ahead."""
        after, is_done = cursor, False

        def scan() -> tuple[int, list[bytes]] | None:
            nonlocal after, is_done
            if is_done:
                return None
            after, found = self._scanned(after)
            is_done = not after
            return after, found

        thread = ThreadPoolExecutor(1)  # one thread, so that the scans run in order
        try:
            ahead = deque(thread.submit(scan) for _ in range(_READ_AHEAD))
            while (reply := ahead.popleft().result()) is not None:
                ahead.append(thread.submit(scan))
                yield reply
        finally:
            # Do not wait: the thread that collects this generator may hold any lock, also of `threading`.
            thread.shutdown(wait=False, cancel_futures=True)

    def note(self, done: int) -> None:
        """Store the progress: the filter holds the first `done` members that were yielded."""
        cursor = None
        while self._ahead and self._ahead[0][0] <= done:
            read, cursor = self._ahead.popleft()
        if cursor and self._note:
            self._note.write(cursor, self.before + read)

    def forget(self) -> None:
        """Delete the note, if this import stores one."""
        if self._note:
            self._note.forget()

    def check(self) -> None:
        """Raise `BloomError` if the server was restarted, or the set replaced, while it was read.

        A cursor has no meaning on a server that was started meanwhile, and the client would not notice the
        restart.  A set that has lost all sampled members counts as replaced.
        """
        if self._run_id() != self._run:
            what = f"the server of {self._key!r} was restarted or replaced"
        elif not any(map(self._has, self._some)):
            what = f"{self._key!r} was deleted or replaced"
        else:
            return
        raise BloomError(
            f"{what} while it was read, so members may be missing in the filter",
            command="run the command again",
        )

    def _sample(self) -> list[bytes]:
        """Return some members; of a sorted set those with the highest scores, which trimming removes last."""
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
        """Return the id of the run of the set's server, empty if the user may not run INFO."""
        from redis.exceptions import ResponseError

        source: Any = self._source
        of = {"target_nodes": source.get_node_from_key(self._key)} if is_of_cluster(source) else {}
        with suppress(ResponseError):
            return str(source.info("server", **of).get("run_id", ""))
        return ""
