"""Calls whose replies are lost are interrupted at exact points while that is recorded: no answer is lost."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing, suppress
from functools import partial
from typing import Any, Final

import pytest
import redis

from bloomredis import BatchInterruptedError, BloomError, BloomFilter
from tests.faults.one_key import test_interrupted_losses as losses
from tests.support.lines import Interrupt
from tests.support.points import Point, raised_at
from tests.support.proxy import Exchange, lost, passed, proxied
from tests.support.retries import retrying
from tests.support.servers import Server
from tests.support.sizes import sized

pytestmark = losses.pytestmark

ITEMS: Final = ["a", "b", "c"]
BEHIND: Final = (
    "claiming.py",
    "driven.py",
    "filters.py",
    "forks.py",
    "held.py",
    "observing.py",
    "running.py",
)
"""The files of the last points of a call, at which it has its answer."""


class SoftTimeLimit(Exception):  # noqa: N818 - as in Celery
    """An interruption that may be taken for an error of a call."""


def add(f: Any) -> list[object]:
    """Add the items; return the answers."""
    return [*f.add_many(ITEMS)]


def claim(f: Any) -> list[object]:
    """Claim the items; return the claims."""
    return [*f.claim_many(ITEMS, lease=3600)]


def remove(f: Any) -> list[object]:
    """Remove an item; return the answer."""
    return [f.remove("old")]


CALLED: Final[dict[str, tuple[str, Callable[[Any], list[object]]]]] = {
    "add": ("plain", add),
    "claim": ("plain", claim),
    "counting add": ("counting", add),
    "remove": ("counting", remove),
    "scaling add": ("scaling", add),
    "sharded add": ("sharded", add),
    "sharded claim": ("sharded", claim),
}
"""Calls, each with the kind of its filter."""


class Losing:
    """A fate: the next replies to calls that change the filter are lost, as many as `left`."""

    left = 0

    def __call__(self, exchange: Exchange) -> bool:
        """Choose the fate of a request."""
        if self.left and exchange.verb in ("add", "claim", "remove"):
            self.left -= 1
            return lost(exchange)
        return passed(exchange)


@sized("step", make_test=61, make_test_all=1)
@pytest.mark.parametrize("error", [Interrupt, SoftTimeLimit])
@pytest.mark.parametrize("called", CALLED)
def test_a_lost_reply(
    any_server: Server, called: str, error: type[BaseException], step: int, seed: int
) -> None:
    """The next call on the object gets the answers of one that was lost and then interrupted, or of two."""
    losing, (kind, call) = Losing(), CALLED[called]

    def attempt(number: int, earlier: int) -> Point | None:
        any_client.flushall()
        f, got, kept = make(), list[object](), list[BaseException]()
        assert f.add("old")
        for _ in range(earlier):
            losing.left = 1
            with suppress(BloomError):
                call(f)
        losing.left = 1
        with raised_at(number, error) as where:
            try:
                got = call(f)
            except BaseException as raised:
                kept.append(raised)  # with all frames: a caller may repeat the call while it handles this
                got = raised.results if isinstance(raised, BatchInterruptedError) else []
        losing.left = 0
        if not where:
            return None
        if got == [] or (len(got) < len(ITEMS) and call is not remove):
            got = [*got, *call(f)[len(got) :]]
        assert all(got), (where, got)
        return Point(where[0], returned=False)

    with (
        proxied(any_server.socket, losing) as proxy,
        closing(redis.Redis(port=proxy.port, **retrying(0))) as any_client,
    ):
        make = losses.maker(any_client, kind)
        for earlier in (0, 1):
            for _ in losses.points(step, seed, partial(attempt, earlier=earlier)):
                pass


@sized("step", make_test=23, make_test_all=1)
@pytest.mark.parametrize("kind", ["plain", "scaling", "sharded"])
def test_claims_that_a_signal_meets_have_one_owner(
    any_client: redis.Redis, kind: str, step: int, seed: int
) -> None:
    """A signal's exception ends the call, and the next one gets its claims; or the caller has them, alone."""
    make = losses.maker(any_client, kind)

    def attempt(number: int) -> Point | None:
        any_client.flushall()
        f, held = make(), list[Any]()
        assert f.add("old")
        with raised_at(number, SoftTimeLimit) as where, suppress(SoftTimeLimit):
            try:
                held = f.claim_many(ITEMS, lease=3600)
            except BatchInterruptedError as error:
                held = list(error.results)
        again = [claim.state for claim in f.claim_many(ITEMS, lease=3600)]
        assert again == ["busy"] * len(held) + ["claimed"] * (len(ITEMS) - len(held)), where
        return Point(where[0], returned=False) if where else None

    for _ in losses.points(step, seed, attempt):
        pass


@sized("step", make_test=11, make_test_all=1)
@pytest.mark.parametrize("kind", ["plain", "scaling", "sharded"])
@pytest.mark.parametrize("is_open", [False, True])
def test_a_claim_that_a_signal_meets_is_left(
    any_client: redis.Redis,
    kind: str,
    is_open: bool,  # noqa: FBT001 - of the cases
    step: int,
    seed: int,
) -> None:
    """The next claim of the object gets it, though the exception keeps all frames of the first one."""
    make, kept = losses.maker(any_client, kind), list[BaseException]()

    def attempt(number: int) -> Point | None:
        any_client.flushall()
        f = make()
        if is_open:
            f.add("old")
        held = None
        with raised_at(number, SoftTimeLimit) as where:
            try:
                held = f.claim("a", lease=3600, renew=False)
            except SoftTimeLimit as error:
                kept.append(error)
        if where and held is None and not where[0].startswith(BEHIND):
            assert f.claim("a", lease=3600, renew=False).state == "claimed", where
        return Point(where[0], returned=False) if where else None

    for _ in losses.points(step, seed, attempt):
        pass


@sized("step", make_test=7, make_test_all=1)
def test_an_add_that_a_signal_meets_in_the_local_cache(any_client: redis.Redis, step: int, seed: int) -> None:
    """The copy has learned the item, and the caller got no answer: the next add gets it, not the copy's."""

    def attempt(number: int) -> Point | None:
        any_client.flushall()
        f, got = BloomFilter(any_client, "seen", capacity=1000, error_rate=1e-6, local_cache=60), list[bool]()
        assert f.add("old")
        with raised_at(number, SoftTimeLimit) as where, suppress(SoftTimeLimit):
            got.append(f.add("a"))
        if where and not where[0].startswith(
            ("filters.py", "observing.py", "running.py")
        ):  # behind the answer
            assert [*got, f.add("a"), f.add("a")] in ([True, False, False], [True, False]), where
        return Point(where[0], returned=False) if where else None

    for _ in losses.points(step, seed, attempt):
        pass
