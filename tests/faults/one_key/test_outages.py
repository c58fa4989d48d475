"""Batches that an outage interrupts: every item is new exactly once, however long it lasts."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import pytest

from bloomredis import BatchInterruptedError, BloomError, BloomFilter
from tests.support.background import started
from tests.support.clock import Clock
from tests.support.proxy import Fate, Proxy, dropped, lost, once_executed, passed
from tests.support.sizes import sized

SIZE: dict[str, Any] = {"capacity": 1_600_000, "error_rate": 1e-6}
OUTAGE = 112.0
"""Seconds, far below the life of receipts."""


def told_in_the_end(f: BloomFilter, items: Sequence[str]) -> list[bool]:
    """Add items in one batch that an outage interrupts; retry the rest after it."""
    try:
        return f.add_many(items)
    except BatchInterruptedError as error:
        return error.results + _rest(f, error.rest)


def _rest(f: BloomFilter, rest: Sequence[str]) -> list[bool]:
    told: list[bool] = []
    while rest:
        try:
            return told + f.add_many(rest)
        except BatchInterruptedError as error:
            told, rest = told + error.results, error.rest
        except BloomError:
            continue
    return told


@pytest.mark.parametrize("last", [lost, dropped])
@sized("count", make_test=12_000, make_test_all=65_536)
def test_batches_of_many_threads_over_an_outage(
    any_proxy: Proxy, clock: Clock, count: int, last: Fate
) -> None:
    """Four batches in flight are cut off at once; no item is lost or new a second time."""
    f = BloomFilter(any_proxy.client(), "seen", **SIZE)
    f.create()
    f.add("warm")
    batches = [[f"{batch}{i}" for i in range(count)] for batch in "ABCD"]

    def end() -> None:
        clock.advance(OUTAGE)
        any_proxy.calm()

    def begin() -> None:
        any_proxy.always("add", last)
        any_proxy.plan("add", *[last] * 40, once_executed(end, passed))

    any_proxy.plan("add", *[passed] * 60, once_executed(begin, last))
    adding = [started(partial(told_in_the_end, f, batch)) for batch in batches]
    told = [each.result(100) for each in adding]
    assert [sum(answers) for answers in told] == [count] * 4
    assert f.info().count == 4 * count + 1


@pytest.mark.parametrize("last", [lost, dropped])
@sized("count", make_test=12_000, make_test_all=65_536)
def test_a_batch_over_a_long_outage(
    any_proxy: Proxy, clock: Clock, bloom: Any, count: int, last: Fate
) -> None:
    """The error has the answers that arrived, and a retry has the others."""
    f = bloom(any_proxy.client(), "seen", **SIZE)
    f.add("warm")
    items = [f"{i}" for i in range(count)]
    any_proxy.plan("add", *[passed] * 20, last)
    with pytest.raises(BatchInterruptedError) as caught:
        f.add_many(items)
    assert 0 < len(caught.value.results) < count
    clock.advance(OUTAGE)
    assert caught.value.results + f.add_many(caught.value.rest) == [True] * count
    assert f.info().count == count + 1


@sized("count", make_test=10_000, make_test_all=20_000)
def test_a_batch_over_many_outages(any_proxy: Proxy, bloom: Any, count: int) -> None:
    """Of the calls every tenth is lost after execution, and every tenth before it."""
    f = bloom(any_proxy.client(), "seen", **SIZE)
    f.add("warm")
    rest: Sequence[str] = [f"{i}" for i in range(count)]
    any_proxy.plan("add", *([passed] * 4 + [lost] + [passed] * 4 + [dropped]) * 100)
    told: list[bool] = []
    interruptions = 0
    while rest:
        try:
            answers, rest = f.add_many(rest), []
        except BatchInterruptedError as error:
            answers, rest = error.results, error.rest
            interruptions += 1
        told += answers
    assert told == [True] * count
    assert interruptions > 3
