"""Any sequence of adds and removals gives the same counters as a model."""

from __future__ import annotations

from collections import Counter
from typing import Any

import redis
import redis.asyncio
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from bloomredis.stored import planning
from tests.support.counting import MOST, make, stored_counters
from tests.support.sizes import examples

FEW = [f"{i}" for i in range(8)]
WORKERS = st.sampled_from([0, 1])
ANY = st.sampled_from(FEW)
TINY: dict[str, Any] = {"capacity": 5, "error_rate": 0.2}


class Machine(RuleBasedStateMachine):
    """Two workers on one filter with so few counters that its items share and fill them."""

    def __init__(self, bloom: Any, client: redis.Redis) -> None:
        super().__init__()
        self.bloom = bloom
        self.client = client
        self.layout = planning.plan_counting(**TINY)

    @initialize()
    def begin(self) -> None:
        self.client.flushall()
        self.filters = [make(self.bloom, self.client, **TINY) for _ in range(2)]
        self.filters[0].create()
        self.items: Counter[str] = Counter()
        self.counters = [0] * self.layout.num_bits

    def raised(self, item: str) -> bool:
        """Count an item in the model; return whether it was new."""
        own = set(self.layout.offsets(item))
        new = any(self.counters[counter] == 0 for counter in own)
        for counter in own:
            self.counters[counter] = min(MOST, self.counters[counter] + 1)
        self.items[item] += 1
        return new

    @rule(worker=WORKERS, item=ANY)
    def add(self, worker: int, item: str) -> None:
        assert self.filters[worker].add(item) == self.raised(item)

    @rule(worker=WORKERS, batch=st.lists(ANY, max_size=3), times=st.sampled_from([1, 2, 9]))
    def add_many(self, worker: int, batch: list[str], times: int) -> None:
        answers = self.filters[worker].add_many(batch * times)
        assert answers == [self.raised(item) for item in batch * times]

    @rule(worker=WORKERS, item=ANY)
    def commit(self, worker: int, item: str) -> None:
        claim = self.filters[worker].claim(item)
        if claim:
            self.bloom.wait(claim.commit())
            self.raised(item)

    @rule(worker=WORKERS, item=ANY)
    def remove(self, worker: int, item: str) -> None:
        if not self.items[item]:
            if not self.filters[worker].contains(item):  # else it could not be told from one that is in
                assert not self.filters[worker].remove(item)
            return
        assert self.filters[worker].remove(item)
        self.items[item] -= 1
        for counter in set(self.layout.offsets(item)):
            self.counters[counter] -= self.counters[counter] < MOST

    @rule()
    def clear(self) -> None:
        self.filters[0].clear()
        self.filters[1].acknowledge()
        self.items.clear()
        self.counters = [0] * self.layout.num_bits

    @invariant()
    def nothing_is_missed(self) -> None:
        found = self.filters[1].contains_many(FEW)
        assert all(there for item, there in zip(FEW, found, strict=True) if self.items[item])
        assert found == [all(self.counters[at] for at in self.layout.offsets(item)) for item in FEW]

    @invariant()
    def the_counters_are_exact(self) -> None:
        assert stored_counters(self.client) == {i: n for i, n in enumerate(self.counters) if n}
        count: Any = self.client.getrange("seen", 56, 63)
        assert int.from_bytes(count) == self.items.total()


@examples()
def test_a_model_agrees(bloom: Any, client: redis.Redis, examples: int) -> None:
    """For adds and removals in any order there is no false negative, and every counter is right."""
    run_state_machine_as_test(
        lambda: Machine(bloom, client),  # type: ignore[arg-type]  # documented to take any factory
        settings=settings(
            max_examples=examples,
            stateful_step_count=40,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )
