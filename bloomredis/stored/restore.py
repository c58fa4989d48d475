"""Strings of any length written under their keys in one step, without overwriting anything."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Final

from bloomredis.errors import FilterMismatchError
from bloomredis.protocol import scripts
from bloomredis.protocol.calls import call, send
from bloomredis.protocol.keys import auxiliary_prefix
from bloomredis.protocol.receipts import Lanes
from bloomredis.protocol.replies import outcome_matters
from bloomredis.protocol.steps import Op

_ALLOCATE, _RENAME_NEW = scripts.load("allocate"), scripts.load("rename_new")
_PIECE_BYTES: Final = 1 << 20
_WRITING_MS: Final = 600_000


def place(name: str, strings: Mapping[bytes, bytes]) -> Op[None]:
    """Write each key's string under a temporary name, piece by piece, and then rename all at once.

    The keys lie in the slot of the first.  The temporary ones expire after ten minutes if they are never
    renamed.

    :raises FilterMismatchError: a key is taken; all are left untouched.
    """
    key = next(iter(strings))
    prefix = auxiliary_prefix(key) + b"written:" + os.urandom(8).hex().encode()
    written = {final: prefix + b"/%d" % number for number, final in enumerate(strings)}
    lane = Lanes(key).take()
    for final, data in strings.items():
        yield from call(_ALLOCATE, [written[final]], [len(data), _WRITING_MS])
        for start in range(0, len(data), _PIECE_BYTES):
            yield from send(("SETRANGE", written[final], start, data[start : start + _PIECE_BYTES]))
    with outcome_matters(name, "look whether the key is there now"):
        keys = [lane.key, *(each for pair in written.items() for each in pair)]
        placed = yield from call(_RENAME_NEW, keys, [lane.next_call(0)])
    if placed != 1:
        yield from send(("UNLINK", *written.values()))
        raise FilterMismatchError(f"{name!r} exists already; delete it first, or use another name")
