"""The items that a part of a job keeps; a rerun of the part keeps the same items."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from bloomredis import ClaimLostError
from bloomredis.contrib._outages import patiently


class Kept:
    """The items that one part of a job keeps: items that no other part had before.

    The part claims an item under its own name, adds a mark that it keeps the item, and commits the item.  If
    a run is killed, the next run of the part finds its claims by their owner and its commits by the marks.

    Each kept item is two items of the filter.

    :param owner: the name of the part, which includes the name of its job.
    :param lease: as of `KeptRows` and `SeenFilter`.
    """

    def __init__(self, seen: Any, owner: str, lease: float) -> None:
        self._seen = seen
        self._owner = owner
        self._lease = lease
        self._kept: set[bytes] = set()  # by this run: a later equal item is a repeat

    def mask(self, items: Sequence[str | bytes | int]) -> list[bool]:
        """Return for each item of a batch whether it is kept; of equal items, the first is.

        While the server restarts or fails over, the call waits up to 30 seconds.

        :raises TypeError, ValueError: an item is not accepted; the error names its row.
        :raises ClaimLostError: the batch took longer than the lease, or another run of the part is under way;
            rerun the part.
        """
        try:
            keys = [_bytes(item) for item in items]
        except (TypeError, ValueError):
            self._seen.contains_many(items)  # the filter's own error names the row
            raise
        new = dict.fromkeys(key for key in keys if key not in self._kept)
        ours = patiently(lambda: self._ours(new))  # may be repeated, as a rerun does
        answers = []
        for key in keys:
            is_kept = key in ours and key not in self._kept
            if is_kept:
                self._kept.add(key)
            answers.append(is_kept)
        return answers

    def _ours(self, keys: Iterable[bytes]) -> set[bytes]:
        """Return the keys that this run or an earlier run of this part keeps; no two `keys` are equal."""
        claims = dict(
            zip(keys, self._seen.claim_many(keys, lease=self._lease, owner=self._owner), strict=True)
        )
        if any(claim.is_own for claim in claims.values()):  # to drop them would lose them if that run fails
            raise ClaimLostError(
                f"another run of {self._owner} holds its items", advice="rerun it when that has ended"
            )
        ours = {key for key, claim in claims.items() if claim}
        done = [key for key, claim in claims.items() if claim.state == "done"]
        marked = self._seen.contains_many([self._mark(key) for key in done]) if done else []
        self._seen.add_many([self._mark(key) for key in ours])
        if "lost" in self._seen.commit_many([claims[key] for key in ours]):
            raise ClaimLostError(
                f"{self._owner} took longer than its lease of {self._lease} s", advice="rerun it"
            )
        return ours | {key for key, is_ours in zip(done, marked, strict=True) if is_ours}

    def _mark(self, key: bytes) -> bytes:
        """Return the mark of an item: another item, which says that this part keeps it."""
        return b"%b keeps %b" % (self._owner.encode(), key)


def _bytes(item: str | bytes | int) -> bytes:
    """Return the bytes that the filter hashes for an item."""
    if isinstance(item, str | int) and not isinstance(item, bool):
        return str(item).encode()
    if not isinstance(item, bytes):
        raise TypeError(f"kept items are str, bytes or int, not {type(item).__name__}")
    return item
