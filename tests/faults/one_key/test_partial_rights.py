"""A missing right fails before the first write: a refused call leaves the filter unchanged."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import redis

from bloomredis import BatchInterruptedError, BloomFilter, CountingBloomFilter, ServerRefusedError
from tests.support.readme import acl_rule
from tests.support.servers import Server

pytestmark = pytest.mark.every_server

SIZE: dict[str, Any] = {"capacity": 10_000, "error_rate": 1e-6}
KINDS: dict[str, Callable[[redis.Redis], Any]] = {
    "blocked": lambda client: BloomFilter(client, "seen", layout="blocked", **SIZE),
    "classic": lambda client: BloomFilter(client, "seen", layout="classic", **SIZE),
    "counting": lambda client: CountingBloomFilter(client, "seen", **SIZE),
}
SENDING = {"+eval", "+evalsha"}
"""Rights without which a client cannot call a script at all."""

RIGHTS = [word for word in acl_rule() if word.startswith("+") and word not in SENDING]
ITEMS = [f"{i}" for i in range(200)]


@contextmanager
def without(server: Server, right: str) -> Iterator[redis.Redis]:
    """A client of a user with the documented rights except one."""
    with server.client() as admin:
        rule = [word for word in acl_rule() if word != right]
        admin.execute_command("ACL", "SETUSER", "worker", "reset", ">pw", "on", *rule)
    with server.client(username="worker", password="pw") as client:  # noqa: S106 - a test server's password
        yield client


def change(admin: Any, right: str) -> None:
    """Give the user a right, or take it away."""
    admin.execute_command("ACL", "SETUSER", "worker", right)


@pytest.fixture
def admin(server: Server) -> Iterator[redis.Redis]:
    """A client with all rights."""
    with server.client() as made:
        yield made


def refusal_of(call: Callable[[], object]) -> BaseException | None:
    """Return the refusal of a call."""
    try:
        call()
    except BatchInterruptedError as error:
        return error.__cause__
    except ServerRefusedError as error:
        return error
    return None


CALLS: dict[str, Callable[[Any], Any]] = {
    "add": lambda f: f.add("x"),
    "add_many": lambda f: f.add_many(ITEMS),
    "remove": lambda f: f.remove("there"),
    "clear": lambda f: f.clear(),
    "delete": lambda f: f.delete(),
}


PAIRS = [(kind, verb) for kind in KINDS for verb in CALLS if kind == "counting" or verb != "remove"]
"""Removals exist only in a counting filter."""


@pytest.mark.parametrize(("kind", "verb"), PAIRS)
def test_a_refused_call_leaves_the_filter_as_it_was(
    server: Server, admin: redis.Redis, kind: str, verb: str
) -> None:
    """Whichever right is missing, the filter and its expiry are unchanged, byte for byte."""
    for right in RIGHTS:
        admin.flushall()
        f = KINDS[kind](admin)
        f.add("there")
        f.expire(1000)
        before = admin.get("seen")
        with without(server, right) as client:
            refusal = refusal_of(lambda: CALLS[verb](KINDS[kind](client)))
        assert refusal is None or getattr(refusal, "word", "") == "NOPERM", (right, refusal)
        if refusal is not None:
            assert admin.get("seen") == before, right
            assert admin.ttl("seen") > 0, right


@pytest.mark.parametrize("kind", KINDS)
def test_refused_items_are_new_when_the_right_is_granted(
    server: Server, admin: redis.Redis, kind: str
) -> None:
    """They are new for another object too, so a wrong rule costs no item."""
    refusals = 0
    for right in RIGHTS:
        admin.flushall()
        KINDS[kind](admin).create()
        with without(server, right) as client:
            f = KINDS[kind](client)
            refused = [refusal_of(call) for call in (lambda: f.add("x"), lambda: f.add_many(ITEMS))]  # noqa: B023 - called at once
        refusals += sum(each is not None for each in refused)
        change(admin, right)
        with server.client(username="worker", password="pw") as client:  # noqa: S106 - of a test's server
            f = KINDS[kind](client)
            assert f.add("x") == (refused[0] is not None), right
            assert f.add_many(ITEMS) == [refused[1] is not None] * len(ITEMS), right
    assert refusals >= 4  # at least for reading, writing, and writing a receipt


@pytest.mark.parametrize("kind", KINDS)
def test_a_refused_commit_keeps_the_claim(server: Server, admin: redis.Redis, kind: str) -> None:
    """Nothing is added and the claim is kept; the commit succeeds when the right is granted."""
    for right in RIGHTS:
        admin.flushall()
        with without(server, "") as client:
            f = KINDS[kind](client)
            claim = f.claim("x", lease=60)
            change(admin, right.replace("+", "-"))
            before = admin.get("seen")
            refusal = refusal_of(claim.commit)
            if refusal is not None:
                assert admin.get("seen") == before, right
                assert claim.state == "claimed", right
            change(admin, right)
            claim.commit()
            assert claim.state == "done", right
            assert "x" in f, right


def test_no_filter_stays_without_its_expiry(server: Server, admin: redis.Redis) -> None:
    """Whichever right is missing at the creation of a filter, the key left over expires."""
    for right in RIGHTS:
        admin.flushall()
        with without(server, right) as client:
            refusal_of(BloomFilter(client, "seen", ttl=1000, **SIZE).create)
        assert admin.ttl("seen") != -1, right
