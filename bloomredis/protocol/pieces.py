"""Pieces of a filter's bits; one short script reads or writes one piece."""

from __future__ import annotations

from typing import Final

from bloomredis.protocol import forms, scripts

PIECE_BYTES: Final = 128 << 10
"""The bytes that one script reads or writes, in some 0.1 ms."""

PIECES_AT_ONCE: Final = 8
"""The number of pieces in one round trip."""

READ: Final = scripts.load_script("read", forms.data)
