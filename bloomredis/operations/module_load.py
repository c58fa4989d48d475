"""Bulk load of a filter in a key of the server's module: items as they are, and no answers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from bloomredis.bits.encoding import Encoder, RowError
from bloomredis.operations.loading import counted
from bloomredis.protocol import scripts
from bloomredis.protocol.replies import OutcomeMatters
from bloomredis.protocol.steps import Next, Op
from bloomredis.stored.base import Stored
from bloomredis.stored.handle import Handle

_LOAD: Final = scripts.load("module_load")


class _Rows:
    """The batch that was read last, encoded."""

    def __init__(self, encoder: Encoder) -> None:
        self._encoder = encoder
        self.done = 0
        self.encoded: Sequence[str | bytes] = ()

    def take(self, items: Sequence[Any]) -> None:
        """Encode a batch.  Raises TypeError or ValueError for an item that cannot be encoded."""
        try:
            self.encoded = self._encoder.encode_all(items)
        except RowError as error:
            error.row += self.done
            raise


def load_items(
    stored: Stored, encoder: Encoder, source: Any, progress: Callable[[int], object] | None
) -> Op[int]:
    """Add items, some in each script; return how many were read.

    :param source: an iterator of batches.
    """
    rows = _Rows(encoder)
    while (yield Next(source, rows.take)):
        with counted(rows.done), OutcomeMatters(stored.name):
            yield from _send(stored, rows.encoded)
        rows.done += len(rows.encoded)
        if progress is not None:
            progress(rows.done)
    return rows.done


def _send(stored: Stored, encoded: Sequence[str | bytes]) -> Op[None]:
    handle = yield from stored.acquire()
    for start in range(0, len(encoded), handle.items):
        piece = encoded[start : start + handle.items]

        def work(handle: Handle, piece: Sequence[str | bytes] = piece) -> Op[None]:
            return stored.run(_LOAD, handle, [handle.layout.pack(piece)])

        yield from stored.attempt(work)
