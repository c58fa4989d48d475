"""Tasks that share round trips over several shards, of which some lose their replies."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest

import bloomredis.asyncio
from bloomredis import BatchInterruptedError, OutcomeUnknownError
from tests.support.proxy import Proxy, dropped, lost, passed
from tests.support.sharding import ITEMS, OPTIONS


@pytest.mark.parametrize("seed", range(4))
def test_each_item_is_new_once(any_proxy: Proxy, seed: int) -> None:
    """Each caller has an answer or an error, by whose tokens any object gets the answer."""
    rng = random.Random(seed)
    new: Counter[str] = Counter()
    outcomes: set[type] = set()

    async def main() -> None:
        client, others = any_proxy.asyncio_client(), any_proxy.asyncio_client()
        f, g = (bloomredis.asyncio.ShardedBloomFilter(each, "seen", **OPTIONS) for each in (client, others))
        await f.add_many(ITEMS[:5])
        any_proxy.plan("add", *rng.choices((passed, lost, dropped), (8, 1, 1), k=40))
        calls = [ITEMS[at : at + rng.choice((1, 1, 1, 4))] for at in range(5, len(ITEMS), 4)]
        told = await asyncio.gather(
            *(f.add(call[0]) if len(call) == 1 else f.add_many(call) for call in calls),
            return_exceptions=True,
        )
        any_proxy.calm()
        for call, outcome in zip(calls, told, strict=True):
            outcomes.add(type(outcome))
            await take(f, g, call, outcome)
        for each in (client, others):
            await each.aclose()
        assert new == dict.fromkeys([item for call in calls for item in call], 1)

    async def take(f: Any, g: Any, call: Sequence[str], outcome: Any) -> None:
        answers, tokens = outcome, list[str | None]()
        if isinstance(outcome, BatchInterruptedError):
            answers, tokens = outcome.results, [*outcome.tokens]
        elif isinstance(outcome, OutcomeUnknownError):
            answers, tokens = [], [outcome.token]
        answers = answers if isinstance(answers, list) else [answers]
        new.update(item for item, is_new in zip(call, answers, strict=False) if is_new)
        left = call[len(answers) :]
        for item, token in zip(left, [*tokens, *[None] * len(left)], strict=False):
            if await (g.add(item, token=token) if token and rng.random() < 0.5 else f.add(item)):
                new[item] += 1

    asyncio.run(main())
    assert OutcomeUnknownError in outcomes
