"""The bits of a filter in pieces, each of which one short script reads or writes."""

from __future__ import annotations

from typing import Final

from bloomredis.protocol import forms, scripts

PIECE_BYTES: Final = 128 << 10
"""Bytes that one script reads or writes: some 0.1 ms."""

AT_ONCE: Final = 8
"""Pieces that are sent in one round trip."""

READ: Final = scripts.load("read", forms.data)
