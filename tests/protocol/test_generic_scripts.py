"""Scripts made of pieces reply, store and refuse what the generic scripts before them did.

The calls are drawn: a quarter is malformed, others are retries and late copies, or meet claims of others and
keys of another type.
"""

from __future__ import annotations

from contextlib import closing

import pytest
import redis

from tests.support.generic_scripts import KINDS, Pair
from tests.support.modules import needs_module
from tests.support.sizes import sized

_CALLS_OF_A_FILTER = 250  # a filter grows with its calls, and each call compares all of it


@pytest.mark.parametrize("kind", KINDS)
@sized("calls", make_test=40, make_test_all=5000)
def test_pieces_do_what_generic_scripts_did(client: redis.Redis, kind: str, calls: int, seed: int) -> None:
    """Both forms leave equal databases after each call, and reply the same."""
    if kind == "module":
        needs_module(client)
    if not isinstance(client.connection_pool.connection_kwargs.get("path"), str):
        calls = max(20, calls // 20)  # fakeredis takes twenty times as long
    for first in range(0, calls, _CALLS_OF_A_FILTER):
        with closing(Pair(client, kind, seed + first)) as pair:
            made = min(_CALLS_OF_A_FILTER, calls - first)
            for _ in range(made):
                pair.call()
            assert pair.differences == []
            assert sum(pair.outcomes.values()) == made
