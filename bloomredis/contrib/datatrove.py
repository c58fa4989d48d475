"""A filter for datatrove that keeps the first of equal documents over all tasks; tasks may be rerun."""

from __future__ import annotations

from collections.abc import Callable
from hashlib import blake2b
from typing import Any, Final

from bloomredis import BloomFilter, ShardedBloomFilter
from bloomredis.contrib import needs
from bloomredis.contrib._flavours import require_sync
from bloomredis.contrib._items import Missing, checked, is_kept
from bloomredis.contrib._kept import Kept

with needs("datatrove", "datatrove"):
    from datatrove.pipeline.filters.base_filter import BaseFilter

__all__ = ["SeenFilter", "text_digest"]

_SEEN: Final = (False, "seen")
_WITHOUT_KEY: Final = (False, "no key")


def text_digest(document: Any) -> bytes:
    """Return a digest of 16 bytes of the text of a document."""
    return blake2b(document.text.encode("utf-8", "surrogatepass"), digest_size=16).digest()


class SeenFilter(BaseFilter):
    """A step that keeps the first of equal documents, over all tasks of a job.

    A task is identified by the job and its rank.  If it is run again, it keeps the documents that its first
    run kept, even if that run was killed.

    Each kept document takes about 100 bytes in its task.  A batch costs three round trips, and one more if it
    has repeats.

    :param seen: a filter made by `from_url`, since tasks are other processes; its capacity is twice the
        number of different documents.
    :param job: a name for all tasks of this run of the pipeline.  A task that is run again needs the same
        name.  Another job over the same filter needs another name, or it keeps what the first job kept.
    :param key: returns the str or bytes by which documents are compared; it must not depend on the task.
    :param missing: treatment of a document whose `key` is None: "keep" or "drop" it, or "raise" an error.
    :param lease: if a task dies before it has committed a document, another task may take the document after
        so many seconds.  If the task is run again later than that, both may keep it.
    :param exclusion_writer: writes the documents that are dropped.
    :param batch_size: the number of documents that are sent together.
    """

    name = "bloomredis"

    def __init__(
        self,
        seen: BloomFilter | ShardedBloomFilter,
        *,
        job: str,
        key: Callable[[Any], str | bytes | None] = text_digest,
        missing: Missing = "keep",
        lease: float = 3600.0,
        exclusion_writer: Any = None,
        batch_size: int = 1000,
    ) -> None:
        super().__init__(exclusion_writer, batch_size)
        require_sync(seen, "SeenFilter")
        if not job:
            raise ValueError("job must not be empty: it identifies tasks that are run again")
        self._seen = seen
        self._job = job
        self._key = key
        self._missing = checked(missing)
        self._lease = lease
        self._begin(0)

    def run(self, data: Any, rank: int = 0, world_size: int = 1) -> Any:
        """Yield the documents that a task keeps."""
        self._begin(rank)
        yield from super().run(data, rank, world_size)

    def _begin(self, rank: int) -> None:
        self._kept = Kept(self._seen, f"{self._job}:{rank}", self._lease)

    def filter(self, doc: Any) -> bool | tuple[bool, str]:
        """Return whether a document is kept, or the reason why it is dropped."""
        return self.filter_batch([doc])[0]

    def filter_batch(self, batch: list[Any]) -> list[bool | tuple[bool, str]]:
        """Return for each document whether it is kept, or the reason why it is dropped.

        :raises ClaimLostError: a batch took longer than the lease; run the task again.
        """
        keys = [self._key(document) for document in batch]
        answers = [
            key is None and (is_kept(self._missing, f"document {document.id}") or _WITHOUT_KEY)
            for key, document in zip(keys, batch, strict=True)
        ]
        kept = iter(self._kept.mask([key for key in keys if key is not None]))
        return [answer or next(kept) or _SEEN for answer in answers]
