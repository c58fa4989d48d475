"""Strings of any length written under a key in one step, without overwriting anything."""

from __future__ import annotations

import os
from typing import Final

from bloomredis.errors import FilterMismatchError
from bloomredis.protocol import scripts
from bloomredis.protocol.calls import call, send
from bloomredis.protocol.keys import auxiliary_prefix
from bloomredis.protocol.receipts import Lanes
from bloomredis.protocol.replies import outcome_matters
from bloomredis.protocol.steps import Op

_RENAME_NEW: Final = scripts.load("rename_new")
_PIECE_BYTES: Final = 1 << 20
_WRITING_MS: Final = 600_000


def place(name: str, key: bytes, data: bytes) -> Op[None]:
    """Write `data` under a temporary name, piece by piece, and then rename it.

    The temporary key expires after ten minutes if it is never renamed.

    :raises FilterMismatchError: the key is taken; it is left untouched.
    """
    written = auxiliary_prefix(key) + b"written:" + os.urandom(8).hex().encode()
    lane = Lanes(key).take()
    yield from send(("SETRANGE", written, len(data) - 1, b"\0"))  # the server allocates it once and exactly
    yield from send(("PEXPIRE", written, _WRITING_MS))
    for start in range(0, len(data), _PIECE_BYTES):
        yield from send(("SETRANGE", written, start, data[start : start + _PIECE_BYTES]))
    with outcome_matters(name, "look whether the key is there now"):
        placed = yield from call(_RENAME_NEW, [key, written, lane.key], [lane.next_call(0)])
    if placed != 1:
        yield from send(("UNLINK", written))
        raise FilterMismatchError(f"{name!r} exists already; delete it first, or use another name")
