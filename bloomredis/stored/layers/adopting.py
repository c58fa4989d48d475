"""A filter in one key that becomes the first layer of a growing filter."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import Final

from bloomredis.errors import FilterNotFoundError
from bloomredis.protocol import forms, scripts
from bloomredis.protocol.clock import next_round
from bloomredis.protocol.steps import Op
from bloomredis.stored.header import ADOPTED, Header
from bloomredis.stored.layers.record import ScalingRecord
from bloomredis.stored.one_key.single import StoredFilter

_ADOPT: Final = scripts.load_script("adopt", forms.record)


def adopt(name: str, encoding: int | None, expansion: int, tightening_ratio: float) -> Op[None]:
    """Make the filter of this name the first layer of a growing filter, whatever its generation.

    :raises FilterNotFoundError: the key is missing.
    :raises FilterMismatchError: the key holds something else.
    :raises ValueError: the filter's error rate leaves none for further layers.
    """
    stored = StoredFilter(name, new=None, layout=None, ttl=0, on_lost="raise", wait=None, encoding=encoding)
    reply = rounds = None
    while reply is None:
        rounds = yield from next_round(rounds, name)
        try:
            found = (yield from stored.describe()).header
        except FilterNotFoundError:
            raise FilterNotFoundError(
                f"there is no filter {name!r} to adopt",
                advice="ScalingBloomFilter() with capacity and error_rate creates one",
                command="bloomredis create with --kind scaling makes one",
            ) from None
        record = _record(found, expansion, tightening_ratio)
        keys = [stored.key, stored.auxiliary + b"layer:0"]
        made = [found.identity, record.template(), record.layer(0).pack()]
        reply = yield from stored.if_unchanged(_ADOPT, keys, made)


def _record(found: Header, expansion: int, tightening_ratio: float) -> ScalingRecord:
    """Return the record; as for any first layer, the adopted filter's rate is (1 - r) times the whole."""
    rate = found.error_rate / (1 - tightening_ratio)
    if rate >= 1:
        raise ValueError(
            f"a first layer of error_rate {found.error_rate} makes a filter of error_rate {rate:g} with "
            f"tightening_ratio {tightening_ratio}: use a smaller tightening_ratio"
        )
    new = found.as_new(os.urandom(8), created_at=0)
    head = replace(new, kind=ScalingRecord.kind, rules=ADOPTED, error_rate=rate, count=0)
    return ScalingRecord(head=head, expansion=expansion, tightening_ratio=tightening_ratio)
