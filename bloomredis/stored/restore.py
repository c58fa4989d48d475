"""How a string of any length comes under a key at once, without overwriting anything."""

from __future__ import annotations

import os
from typing import Final

from bloomredis.errors import FilterMismatchError
from bloomredis.protocol import calls, scripts
from bloomredis.protocol.keys import beside
from bloomredis.protocol.receipts import Receipts
from bloomredis.protocol.replies import NoReply
from bloomredis.protocol.steps import Op

_PLACE: Final = scripts.load("rename_new")
_PIECE_BYTES: Final = 1 << 20
_WRITING_MS: Final = 600_000


def place(name: str, key: bytes, data: bytes) -> Op[None]:
    """Write `data` under another name, piece by piece, and then give it its own in one step.

    What was written vanishes after ten minutes if the last step is never made.

    :raises FilterMismatchError: the key is taken; it is left untouched.
    """
    written = beside(key) + b"written:" + os.urandom(8).hex().encode()
    receipts = Receipts(key)
    lane = receipts.take()
    yield ("SETRANGE", written, len(data) - 1, b"\0")  # the server allocates it once and exactly
    yield ("PEXPIRE", written, _WRITING_MS)
    for start in range(0, len(data), _PIECE_BYTES):
        yield ("SETRANGE", written, start, data[start : start + _PIECE_BYTES])
    try:
        placed = yield from calls.call(_PLACE, [key, written, lane.key], [lane.next_call()])
    except NoReply as unanswered:
        raise unanswered.public(name, "look whether the key is there now") from unanswered
    if placed != 1:
        yield ("UNLINK", written)
        raise FilterMismatchError(f"{name!r} exists already; delete it first, or use another name")
