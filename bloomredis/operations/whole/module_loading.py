"""Bulk load of a filter in a key of the server's module, which alone can write its bits."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from bloomredis.bits.encoding import Encoder, rows_from
from bloomredis.operations.whole.loading import counted
from bloomredis.protocol import forms, scripts
from bloomredis.protocol.replies import OutcomeMatters
from bloomredis.protocol.steps import Batches, Next, Op
from bloomredis.stored.state.base import Stored
from bloomredis.stored.state.handle import Handle

_LOAD: Final = scripts.load_script("module_load", forms.integer)


class _Rows:
    """The last batch read, encoded."""

    def __init__(self, encoder: Encoder) -> None:
        self._encoder = encoder
        self.done = 0
        self.encoded: Sequence[str | bytes] = ()

    def take(self, items: Sequence[Any]) -> None:
        """Encode a batch.  Raises TypeError or ValueError if an item cannot be encoded."""
        with rows_from(self.done):
            self.encoded = self._encoder.encode_all(items)


def load_items(
    stored: Stored, encoder: Encoder, source: Batches, progress: Callable[[int], object] | None
) -> Op[int]:
    """Add items, in one or more scripts; return the number of items read.

    :param source: an iterator of batches.
    """
    rows = _Rows(encoder)
    while (yield Next(source, rows.take)):
        with counted(lambda: rows.done), OutcomeMatters(stored.name):
            yield from _send_items(stored, rows.encoded)
        rows.done += len(rows.encoded)
        if progress is not None:
            progress(rows.done)
    return rows.done


def _send_items(stored: Stored, encoded: Sequence[str | bytes]) -> Op[None]:
    handle = yield from stored.acquire()
    for start in range(0, len(encoded), handle.items):
        piece = encoded[start : start + handle.items]

        def work(handle: Handle, piece: Sequence[str | bytes] = piece) -> Op[int]:
            return stored.run(_LOAD, handle, [handle.layout.pack(piece)])

        yield from stored.attempt(work)
