"""A filter for datatrove: the first of equal documents over all tasks, which may be run again."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from hashlib import blake2b
from typing import Any, Final

from bloomredis import BloomFilter, ClaimLostError, ShardedBloomFilter
from bloomredis.contrib import missing

try:
    from datatrove.pipeline.filters.base_filter import BaseFilter
except ImportError as error:
    raise missing("datatrove", "datatrove") from error

_DROPPED: Final = (False, "seen")


def text_digest(document: Any) -> bytes:
    """Return 16 bytes for the text of a document."""
    return blake2b(document.text.encode("utf-8", "surrogatepass"), digest_size=16).digest()


class SeenFilter(BaseFilter):
    """Keeps the first of equal documents, over all tasks of a job.

    A task that is run again keeps the documents that its first run has kept.  So a document is claimed by its
    task, which is named by the job and its rank; then a mark that this task keeps it is added, and then it is
    committed.  Whatever a run has done before it was killed is found by the next one: its claims by their
    owner, and what was committed by the marks.

    Each document that is kept is two items of the filter, and takes some 100 bytes in its task.  Three round
    trips for a batch, and one more for one with repeats.

    :param seen: a filter made by `from_url`, since tasks are other processes; its capacity is twice the
        number of different documents.
    :param job: a name for all tasks of this run of the pipeline.  Tasks that are run again have the same, and
        another job over the same filter has another one, or it keeps what the first has kept.
    :param key: returns what documents are compared by, a str or bytes; it must not depend on the task.
    :param lease: seconds until another task may take a document of one that died before its mark was there.
    :param exclusion_writer: writes the documents that are dropped.
    :param batch_size: documents that are sent together.
    """

    name = "bloomredis"

    def __init__(
        self,
        seen: BloomFilter | ShardedBloomFilter,
        *,
        job: str,
        key: Callable[[Any], str | bytes] = text_digest,
        lease: float = 3600.0,
        exclusion_writer: Any = None,
        batch_size: int = 1000,
    ) -> None:
        super().__init__(exclusion_writer, batch_size)
        if not job:
            raise ValueError("job must not be empty: tasks that are run again are known by it")
        self._seen = seen
        self._job = job
        self._key = key
        self._lease = lease
        self._begin(0)

    def run(self, data: Any, rank: int = 0, world_size: int = 1) -> Any:
        """Yield the documents of a task that no other one has."""
        self._begin(rank)
        yield from super().run(data, rank, world_size)

    def _begin(self, rank: int) -> None:
        self._owner = f"{self._job}:{rank}"
        self._kept: set[bytes] = set()  # by this run, of which later equals are repeats

    def filter(self, doc: Any) -> bool | tuple[bool, str]:
        """Keep a document, or drop it."""
        return self.filter_batch([doc])[0]

    def filter_batch(self, batch: list[Any]) -> list[bool | tuple[bool, str]]:
        """Keep or drop documents.

        :raises ClaimLostError: the task took longer than the lease; run it again.
        """
        keys = [_bytes(self._key(document)) for document in batch]
        ours = self._ours(dict.fromkeys(key for key in keys if key not in self._kept))
        answers: list[bool | tuple[bool, str]] = []
        for key in keys:
            is_kept = key in ours and key not in self._kept
            if is_kept:
                self._kept.add(key)
            answers.append(is_kept or _DROPPED)
        return answers

    def _ours(self, keys: Iterable[bytes]) -> set[bytes]:
        """Return those of different keys that are this task's, by this run or an earlier one."""
        claims = dict(zip(keys, self._seen.claim_many(keys, self._lease, owner=self._owner), strict=True))
        ours = {key for key, claim in claims.items() if claim}
        done = [key for key, claim in claims.items() if claim.state == "done"]
        marked = self._seen.contains_many([self._mark(key) for key in done]) if done else []
        self._seen.add_many([self._mark(key) for key in ours])
        if "lost" in self._seen.commit_many([claims[key] for key in ours]):
            raise ClaimLostError(f"{self._owner} took longer than its lease of {self._lease} s; run it again")
        return ours | {key for key, is_ours in zip(done, marked, strict=True) if is_ours}

    def _mark(self, key: bytes) -> bytes:
        """Return the item that says that this task keeps a document."""
        return b"%b keeps %b" % (self._owner.encode(), key)


def _bytes(key: str | bytes) -> bytes:
    return key.encode() if isinstance(key, str) else key
