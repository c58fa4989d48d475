"""Any sequence of calls by two workers on one filter gives the answers of a model."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import redis
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule, run_state_machine_as_test

from bloomredis import ClaimLostError, FilterLostError, FilterNotFoundError
from tests.support.keys import claim_key
from tests.support.sizes import examples

WORKERS = st.sampled_from([0, 1])
ITEMS = st.sampled_from(["a", "b", "c", "d"])
NOTHING: Any = object()


@dataclass
class Claimed:
    """A claim, its worker, and its generation."""

    claim: Any
    worker: int
    generation: int


def _info_if_there(f: Any) -> Any:
    try:
        return f.info()
    except FilterNotFoundError:
        return None


class Machine(RuleBasedStateMachine):
    """Two workers' filter objects, and a model: the stored items, and the generation each worker knows."""

    def __init__(self, bloom: Any, client: redis.Redis) -> None:
        super().__init__()
        self.bloom = bloom
        self.client = client

    @initialize()
    def begin(self) -> None:
        self.client.flushall()
        self.filters = [self.bloom(self.client, "seen", capacity=1000, error_rate=1e-9) for _ in range(2)]
        self.generations = 0
        self.stored: int | None = None
        self.known: list[int | None] = [None, None]
        self.acknowledged: set[int | None] = set()
        self.items: set[str] = set()
        self.holders: dict[str, Claimed] = {}
        self.claims: list[Claimed] = []

    # -- the model

    def create(self) -> None:
        self.generations += 1
        self.stored = self.generations
        self.items = set()

    def opens(self, worker: int) -> None:
        if self.stored is None:
            self.create()
        self.known[worker] = self.stored

    def call(self, worker: int, call: Callable[[Any], Any], *, reads: bool = False) -> Any:
        """Make a worker's call; it raises a loss once, or until somebody acknowledges it.

        :param reads: the call opens a filter that is there, and creates none.
        """
        f = self.filters[worker]
        if self.known[worker] is None:
            if self.stored is not None or not reads:
                self.opens(worker)
        elif self.known[worker] != self.stored:
            with pytest.raises(FilterLostError):
                call(f)
            if self.stored is None or self.stored not in self.acknowledged or call is _info_if_there:
                with pytest.raises(FilterLostError):
                    call(f)
                if call is _info_if_there:  # which tells nobody of the loss
                    with pytest.raises(FilterLostError):
                        f.create()
                f.acknowledge()
                self.opens(worker)
                self.acknowledged.add(self.stored)
                return NOTHING
            self.opens(worker)
        return call(f)

    def holder(self, item: str) -> Claimed | None:
        found = self.holders.get(item)
        return found if found is not None and found.generation == self.stored else None

    # -- items

    @rule(worker=WORKERS, item=ITEMS)
    def add(self, worker: int, item: str) -> None:
        answer = self.call(worker, lambda f: f.add(item))
        if answer is not NOTHING:
            assert answer == (item not in self.items)
            self.items.add(item)

    @rule(worker=WORKERS, batch=st.lists(ITEMS, max_size=6))
    def add_many(self, worker: int, batch: list[str]) -> None:
        if not batch:
            return
        answers = self.call(worker, lambda f: f.add_many(batch))
        if answers is not NOTHING:
            for item, answer in zip(batch, answers, strict=True):
                assert answer == (item not in self.items)
                self.items.add(item)

    @rule(worker=WORKERS)
    def contains(self, worker: int) -> None:
        answers = self.call(worker, lambda f: f.contains_many(["a", "b", "c", "d"]), reads=True)
        if answers is not NOTHING:
            assert answers == [self.stored is not None and item in self.items for item in "abcd"]

    @rule(worker=WORKERS)
    def count(self, worker: int) -> None:
        info = self.call(worker, _info_if_there, reads=True)
        if info is not NOTHING:
            assert (info and info.count) == (None if self.stored is None else len(self.items))

    # -- claims

    @rule(worker=WORKERS, item=ITEMS)
    def claim(self, worker: int, item: str) -> None:
        claim = self.call(worker, lambda f: f.claim(item, lease=1000))
        if claim is NOTHING:
            return
        state = "done" if item in self.items else "busy" if self.holder(item) else "claimed"
        assert claim.state == state
        if claim:
            assert self.stored is not None
            self.holders[item] = Claimed(claim, worker, self.stored)
            self.claims.append(self.holders[item])

    @rule(data=st.data())
    def commit(self, data: st.DataObject) -> None:
        if not self.claims:
            return
        claimed = data.draw(st.sampled_from(self.claims))
        claim, item = claimed.claim, claimed.claim.item

        def commit(_: object) -> bool:
            try:
                self.bloom.wait(claim.commit())
            except ClaimLostError:
                return False
            return True

        if not claim:
            assert commit(None) == (claim.state == "done")
            return
        answer = self.call(claimed.worker, commit)
        if answer is not NOTHING:
            assert answer == (self.holder(item) is claimed)
            if answer:
                self.items.add(item)
                del self.holders[item]

    @rule(data=st.data())
    def release(self, data: st.DataObject) -> None:
        if self.claims:
            claimed = data.draw(st.sampled_from(self.claims))
            held = bool(claimed.claim)
            self.bloom.wait(claimed.claim.release())
            if held and self.holders.get(claimed.claim.item) is claimed:
                del self.holders[claimed.claim.item]

    @rule(item=ITEMS)
    def a_lease_runs_out(self, item: str) -> None:
        if self.holders.pop(item, None):
            self.client.delete(claim_key("seen", item))

    # -- the filter as a whole

    @rule(worker=WORKERS)
    def clear(self, worker: int) -> None:
        self.filters[worker].clear()
        self.create()
        self.acknowledged.add(self.stored)
        self.known[worker] = self.stored

    @rule(worker=WORKERS)
    def delete(self, worker: int) -> None:
        assert self.filters[worker].delete() == (self.stored is not None)
        self.stored = self.known[worker] = None

    @rule()
    def is_evicted(self) -> None:
        self.client.delete("seen")
        self.stored = None

    @rule(worker=WORKERS)
    def expire(self, worker: int) -> None:
        self.call(worker, lambda f: f.expire(1000))

    @rule()
    def a_third_opens(self) -> None:
        if self.stored is None:
            with pytest.raises(FilterNotFoundError):
                self.bloom.open(self.client, "seen")
        else:
            assert self.bloom.open(self.client, "seen").info().count == len(self.items)


@examples()
def test_a_model_agrees(bloom: Any, client: redis.Redis, examples: int) -> None:
    """The model agrees for filter, claims, clear, expire, delete and loss in any order."""
    run_state_machine_as_test(
        lambda: Machine(bloom, client),  # type: ignore[arg-type]  # documented to take any factory
        settings=settings(
            max_examples=examples,
            stateful_step_count=40,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )
