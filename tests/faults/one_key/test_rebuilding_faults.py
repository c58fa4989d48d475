"""Faults during a rebuild: lost replies, and a filter that vanishes."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import redis

from bloomredis import (
    BloomFilter,
    ConnectionFailedError,
    FilterLostError,
    FilterMismatchError,
    OutcomeUnknownError,
)
from bloomredis.protocol import scripts
from tests.support.commits import commit_once
from tests.support.proxy import Proxy, dropped, lost, once_executed, passed
from tests.support.values import for_each

OLD: Any = {"capacity": 1000, "error_rate": 0.01}
ENDED = (None, None, None)
FAILED = (ZeroDivisionError, ZeroDivisionError(), None)


@pytest.fixture(autouse=True)
def known_scripts(any_client: redis.Redis) -> None:
    """Load the scripts, so that each lost reply is that of an executed call."""
    for verb in scripts.verbs():
        for layered in (False, True):
            any_client.script_load(scripts.load_script(verb, layered=layered).text)


@pytest.mark.parametrize("is_replaced", [False, True])
def test_who_follows_notices_a_loss(any_proxy: Proxy, any_client: redis.Redis, *, is_replaced: bool) -> None:
    """A filter that vanishes between the refusal and the next read is lost, and is not recreated."""
    seen, other = (BloomFilter(client, "seen", **OLD) for client in (any_client, any_proxy.client()))
    other.add("x")

    def lose() -> None:
        any_client.delete("seen")
        if is_replaced:
            BloomFilter(any_client, "seen", **OLD).reserve()

    with seen.rebuild():
        seen.add("y")
    any_proxy.plan("add", once_executed(lose, passed))
    with pytest.raises(FilterLostError, match="cleared or replaced"):
        other.add("z")


@pytest.mark.parametrize("verb", ["begin_rebuild", "end_rebuild", "abandon_rebuild"])
@pytest.mark.parametrize("times", [1, 3])
def test_lost_replies(any_proxy: Proxy, verb: str, times: int, bloom: Any) -> None:
    """The client may retry each step after its first attempt took effect."""
    seen = bloom(any_proxy.client(retries=3), "seen", **OLD)
    seen.add("old")
    any_proxy.plan(verb, *[lost] * times)
    rebuild = seen.rebuild(capacity=5000)
    new = rebuild.__enter__()
    assert new.add("x")
    assert seen.add("y")
    rebuild.__exit__(*(FAILED if verb == "abandon_rebuild" else ENDED))
    assert seen.contains_many(["old", "x", "y"]) == (
        [True, False, True] if verb == "abandon_rebuild" else [False, True, True]
    )


@pytest.mark.parametrize("verb", ["begin_rebuild", "end_rebuild"])
def test_a_rebuild_whose_outcome_is_unknown_is_made_again(any_proxy: Proxy, verb: str, bloom: Any) -> None:
    """The same object begins again, with an empty successor that replaces the leftover one."""
    seen = bloom(any_proxy.client(), "seen", **OLD)
    seen.add("old")
    any_proxy.plan(verb, lost)
    with pytest.raises(OutcomeUnknownError, match="rebuild it again"):
        _rebuilt(seen)
    assert seen.add("y")
    _rebuilt(seen)
    assert seen.contains_many(["old", "x", "y"]) == [False, True, False]
    assert seen.info().capacity == 5000


def test_nothing_of_a_rebuild_that_did_not_end_comes_back(any_proxy: Proxy, bloom: Any) -> None:
    """The object's next rebuild begins with an empty successor, without the items loaded before."""
    seen = bloom(any_proxy.client(), "seen", **OLD)
    any_proxy.plan("end_rebuild", dropped)
    with pytest.raises((OutcomeUnknownError, ConnectionFailedError)), seen.rebuild() as new:
        new.add("deleted")
    _rebuilt(seen)
    assert seen.contains_many(["deleted", "x"]) == [False, True]


def test_who_has_the_new_parameters_sees_no_loss(any_client: redis.Redis, bloom: Any) -> None:
    """No loss is reported during the rebuild or after it is abandoned."""
    seen = BloomFilter(any_client, "seen", **OLD)
    seen.add("old")
    rebuild = seen.rebuild(capacity=5000)
    rebuild.__enter__()
    deployed = bloom(any_client, "seen", capacity=5000, error_rate=0.01)
    assert deployed.contains("old")
    rebuild.__exit__(*FAILED)
    assert deployed.contains("old")
    assert deployed.add("new")


@for_each("size", [100, 64])
def test_a_successor_that_was_cut_has_vanished(any_client: redis.Redis, bloom: Any, size: int) -> None:
    """An object that finds it uses the filter alone."""
    seen = BloomFilter(any_client, "seen", **OLD)
    seen.add("old")
    rebuild = seen.rebuild(capacity=5000)
    rebuild.__enter__()
    any_client.set("{seen}:successor", any_client.getrange("{seen}:successor", 0, size - 1))
    other = bloom(any_client, "seen", **OLD)
    assert not other.add("old")
    assert other.add("new")
    with pytest.raises(FilterLostError):
        rebuild.__exit__(None, None, None)
    assert not any_client.exists("{seen}:successor")


UNREADABLE = {
    "a later layout": (7, 9),
    "a later version": (6, 2),
    "another encoding": (16, 128),
    "no hashes": (8, 0),
}


@pytest.mark.parametrize("end", ["clear", "delete"])
@for_each("damage", UNREADABLE)
def test_a_successor_that_cannot_be_read(any_client: redis.Redis, bloom: Any, end: str, damage: str) -> None:
    """Old and new objects raise an error until the filter is cleared or deleted; none loops."""
    at, byte = UNREADABLE[damage]
    seen = bloom(any_client, "seen", **OLD)
    seen.add("old")
    rebuild = BloomFilter(any_client, "seen", **OLD).rebuild(capacity=5000)
    rebuild.__enter__()
    any_client.setrange("{seen}:successor", at, bytes([byte]))
    asks: list[Callable[[], object]] = [seen.info, partial(bloom.open, any_client, "seen")]
    asks += [partial(f.add, "new") for f in (seen, bloom(any_client, "seen", **OLD))]
    for ask in asks:
        with pytest.raises(
            FilterMismatchError, match=r"damaged or was created by a later release.* clear\(\) or delete"
        ):
            ask()
    getattr(seen, end)()
    assert not any_client.exists("{seen}:successor")
    assert seen.add("old")
    rebuild.__exit__(*FAILED)


def _rebuilt(seen: Any) -> None:
    with seen.rebuild(capacity=5000) as new:
        new.add("x")


@pytest.mark.parametrize("is_executed", [False, True])
@pytest.mark.parametrize("by_token", [False, True])
def test_an_add_without_an_answer_before(
    any_proxy: Proxy, any_client: redis.Redis, bloom: Any, *, by_token: bool, is_executed: bool
) -> None:
    """A retry after the swap is told that the item was new, and the item is in the new filter."""
    f, seen = bloom(any_proxy.client(), "seen", **OLD), BloomFilter(any_client, "seen", **OLD)
    f.add("warm")
    token = _token(any_proxy, f, lost if is_executed else dropped)
    with seen.rebuild(capacity=5000):
        pass
    assert f.add("x", token=token) if by_token else f.add("x")
    assert not seen.add("x")


@pytest.mark.parametrize("by_token", [False, True])
def test_an_answer_that_is_asked_for_meanwhile(
    any_proxy: Proxy, any_client: redis.Redis, bloom: Any, *, by_token: bool
) -> None:
    """A retry of an earlier add puts the item into the successor too, and still reports it as new."""
    f, seen = bloom(any_proxy.client(), "seen", **OLD), BloomFilter(any_client, "seen", **OLD)
    f.add("warm")
    token = _token(any_proxy, f, lost)
    with seen.rebuild(capacity=5000):
        assert f.add("x", token=token) if by_token else f.add("x")
    assert not seen.add("x")


def test_a_kept_answer_is_kept_through_faults(any_proxy: Proxy, any_client: redis.Redis) -> None:
    """The item goes into the successor, and the object keeps the answer whatever becomes of that call."""
    f, seen = (BloomFilter[Any](client, "seen", **OLD) for client in (any_proxy.client(), any_client))
    assert f.add("warm")
    assert seen.add("x")
    f._operations.answer_store()([b"x"], [True])  # like a cancelled task
    with seen.rebuild(capacity=5000):
        assert f.add("warm") is False
        any_proxy.plan("add", lost)
        with pytest.raises(OutcomeUnknownError) as caught:
            f.add("x")
        assert caught.value.token is None
        assert f.add("x")
    assert not seen.add("x")


def test_a_commit_that_is_made_again_meanwhile(any_proxy: Proxy, any_client: redis.Redis) -> None:
    """The commit's reply was lost before the rebuild: a retry puts the item into the successor too."""
    f, seen = (BloomFilter(client, "seen", **OLD) for client in (any_proxy.client(), any_client))
    claim = f.claim("x")
    any_proxy.plan("commit", lost)
    with pytest.raises(OutcomeUnknownError):
        commit_once(claim)
    with seen.rebuild(capacity=5000):
        claim.commit()
    assert seen.claim("x").state == "done"


@pytest.mark.parametrize("is_executed", [False, True])
@pytest.mark.parametrize("by_token", [False, True])
def test_an_add_without_an_answer_meanwhile(
    any_proxy: Proxy, any_client: redis.Redis, bloom: Any, *, by_token: bool, is_executed: bool
) -> None:
    """A retry after the swap is told that the item was new, and the item is in the new filter."""
    f, seen = bloom(any_proxy.client(), "seen", **OLD), BloomFilter(any_client, "seen", **OLD)
    with seen.rebuild(capacity=5000):
        f.add("warm")
        token = _token(any_proxy, f, lost if is_executed else dropped)
        assert seen.contains("x") is is_executed
    assert f.add("x", token=token) if by_token else f.add("x")
    assert not seen.add("x")


def _token(proxy: Proxy, f: Any, fate: Any) -> Any:
    """Return the token of an add of x without an answer."""
    proxy.plan("add", fate)
    with pytest.raises(OutcomeUnknownError) as caught:
        f.add("x")
    return caught.value.token
