"""Calls about one claim beside each other, and claims beside keys that are none."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import redis

from bloomredis import BloomFilter, ClaimLostError, OutcomeUnknownError
from tests.support.clock import Clock
from tests.support.keys import claim_key
from tests.support.proxy import after, lost, passed, proxied
from tests.support.servers import Server
from tests.support.values import for_each


def make(bloom: Any, client: Any) -> Any:
    return bloom(client, "seen", capacity=1000, error_rate=1e-6)


CALLS: dict[str, Callable[[Any], Any]] = {
    "release": lambda claim: claim.release(),
    "extend": lambda claim: claim.extend(60),
}


@for_each("call", CALLS)
def test_a_commit_beside_another_call_stays_done(server: Server, call: str) -> None:
    """The other call finds nothing to do, or raises; a second commit does nothing."""
    with proxied(server.socket) as proxy:
        f = make(BloomFilter, proxy.client())
        claim = f.claim("a")
        proxy.plan(call, after(claim.commit, passed))
        if call == "extend":
            with pytest.raises(ClaimLostError, match="'done'"):
                CALLS[call](claim)
        else:
            CALLS[call](claim)
        assert claim.state == "done"
        claim.commit()


def test_a_release_does_not_hide_a_commit_without_answer(server: Server, clock: Clock) -> None:
    """The item is done: nothing is released, and a second commit gets the answer."""
    with proxied(server.socket) as proxy:
        f = make(BloomFilter, proxy.client())
        f.claim("the server knows the script from now on").commit()
        claim = f.claim("a")
        proxy.always("commit", after(lambda: clock.advance(20), lost))
        with pytest.raises(OutcomeUnknownError):
            claim.commit()
        proxy.calm()
        claim.release()
        claim.commit()
        assert claim.state == "done"


@for_each("verb", ["extend", "release"])
def test_a_key_that_is_no_claim_loses_only_that_claim(bloom: Any, client: redis.Redis, verb: str) -> None:
    """Another program has overwritten it: the other claims of the call go on, and its key stays."""
    f = make(bloom, client)
    claims = f.claim_many(["a", "b"])
    overwritten = claim_key("seen", "b")
    client.delete(overwritten)
    client.rpush(overwritten, "of another program")
    if verb == "extend":
        assert f.extend_many(claims, 60) == ["claimed", "lost"]
    else:
        f.release_many(claims)
        assert f.claim("a").state == "claimed"
    assert client.type(overwritten) == b"list"
