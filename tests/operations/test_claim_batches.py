"""Many claims at once, with an outcome for each; named claims; and tokens of claims."""

from __future__ import annotations

import random
import time
from functools import partial
from typing import Any

import pytest
import redis

import bloomredis.asyncio
from bloomredis import (
    BatchInterruptedError,
    BloomError,
    BloomFilter,
    Claim,
    ClaimLostError,
    FilterLostError,
    ServerRefusedError,
)
from bloomredis.operations.claims.state import ClaimOptions, ClaimStatus
from bloomredis.protocol.receipts import Sessions
from bloomredis.protocol.steps import Op, Sleep
from tests.support.clock import Clock
from tests.support.inside import commit_once, inside, renewed
from tests.support.keys import claim_key
from tests.support.losing import losing
from tests.support.proxy import Exchange, LateCopy, after, lost, passed, proxied
from tests.support.retries import retrying
from tests.support.servers import Server
from tests.support.values import for_each

KINDS: dict[str, dict[str, Any]] = {
    "BloomFilter": {},
    "CountingBloomFilter": {},
    "ScalingBloomFilter": {},
    "RotatingBloomFilter": {"window": 60},
    "ShardedBloomFilter": {"shards": 4},
}
SIZE: dict[str, Any] = {"capacity": 1000, "error_rate": 1e-6}


def make(bloom: Any, client: Any, **options: Any) -> Any:
    return bloom(client, "seen", **(SIZE | options))


def states(claims: list[Any]) -> list[str]:
    return [claim.state for claim in claims]


@for_each("kind", KINDS)
def test_a_batch_is_committed(bloom: Any, any_client: redis.Redis, kind: str) -> None:
    """For every kind of filter each claim is done, and the items are in."""
    f = make(bloom, any_client, kind=kind, **KINDS[kind])
    claims = f.claim_many([f"{i}" for i in range(30)])
    assert f.extend_many(claims, 60) == ["claimed"] * 30
    assert f.commit_many(claims[:20]) == ["done"] * 20
    assert f.release_many(claims[20:]) == ["released"] * 10
    assert f.contains_many([f"{i}" for i in range(30)]) == [True] * 20 + [False] * 10
    assert not any_client.keys("*claim*") or all(
        any_client.get(key)[-1:] == b"-"  # type: ignore[index]  # a string
        for key in any_client.keys("*claim*")
    )


def test_each_claim_has_its_own_outcome(bloom: Any, client: redis.Redis) -> None:
    """Lost, busy and done claims do not affect the others; an empty batch sends nothing."""
    f = make(bloom, client)
    f.add("done")
    held = f.claim("busy")
    claims = f.claim_many(["a", "done", "busy", "lost", "b"])
    assert held
    client.delete(claim_key("seen", "lost"))
    assert f.commit_many(claims) == ["done", "done", "busy", "lost", "done"] == states(claims)
    assert f.contains_many(["a", "busy", "lost", "b"]) == [True, False, False, True]
    assert f.commit_many(claims) == ["done", "done", "busy", "lost", "done"]
    assert f.commit_many([]) == []


def test_a_batch_takes_one_round_trip(any_server: Server) -> None:
    """The client reads the replies to all scripts at once, each for up to 200 claims."""
    heard: list[int] = []

    class Pipeline(redis.client.Pipeline):
        def execute(self, raise_on_error: bool = True) -> Any:  # noqa: FBT001, FBT002 - as in redis-py
            heard.append(len(self.command_stack))
            return super().execute(raise_on_error)

    class Client(redis.Redis):
        def pipeline(self, transaction: bool = True, shard_hint: Any = None) -> Any:  # noqa: FBT001, FBT002
            return Pipeline(self.connection_pool, self.response_callbacks, transaction, shard_hint)

        def execute_command(self, *args: Any, **options: Any) -> Any:
            heard.append(1)
            execute: Any = super().execute_command
            return execute(*args, **options)

    with Client(unix_socket_path=any_server.socket) as client:
        f = make(BloomFilter, client)

        def renew_many(claims: list[Claim]) -> list[ClaimStatus]:
            assert renewed(f, claims) == [None] * len(claims)
            return ["claimed"]

        for call in (partial(f.extend_many, lease=60), f.commit_many, f.release_many, renew_many):
            call(f.claim_many([f"{call}"]))  # loads the script
            for count, scripts in ((150, 1), (1000, 5)):
                claims = f.claim_many([f"{call}-{count}-{i}" for i in range(count)])
                heard.clear()
                assert set(call(claims)) <= {"claimed", "done", "released"}
                assert heard == [scripts]


def test_a_server_gets_a_script_once(any_server: Server) -> None:
    """The script's text is not sent with each claim of the first batch."""
    with proxied(any_server.socket) as proxy:
        texts: list[bytes] = []

        def watched(exchange: Exchange) -> bool:
            if exchange.arguments[0] == b"EVAL":
                texts.append(exchange.arguments[1])
            return passed(exchange)

        proxy.fate = watched
        f = make(BloomFilter, proxy.client())
        f.commit_many(f.claim_many([f"{i}" for i in range(50)]))
        assert len(texts) == len(set(texts))


def test_equal_items_share_their_claim(bloom: Any, client: redis.Redis) -> None:
    """Equal items get one claim object, as text or bytes, even with other items between them."""
    f = make(bloom, client)
    many = [f"{i}" for i in range(300)]
    claims = f.claim_many([*many, b"7", 7, *many])
    assert set(states(claims)) == {"claimed"}
    assert claims[7] is claims[300] is claims[301] is claims[309]
    assert f.commit_many(claims) == ["done"] * 602
    assert f.info().count == 300


def test_a_claim_of_another_filter_is_refused(bloom: Any, any_client: redis.Redis) -> None:
    """It raises, like anything that is no claim, and nothing is sent."""
    f, other = make(bloom, any_client), bloom(any_client, "other", **SIZE)
    claim = other.claim("a")
    with pytest.raises(ValueError, match="is on 'other', not on 'seen'"):
        f.commit_many([claim])
    with pytest.raises(TypeError, match="not 'a'"):
        f.release_many(["a"])
    bloom.wait(claim.commit()) if bloom.__class__.__name__ == "Asyncio" else claim.commit()


def test_a_lost_filter_is_told(bloom: Any, client: redis.Redis) -> None:
    """The batch raises the loss as a single commit does."""
    f = make(bloom, client)
    claims = f.claim_many(["a", "b"])
    client.flushall()
    with pytest.raises(FilterLostError):
        f.commit_many(claims)


@for_each("verb", ["claim_many", "commit_many", "release_many", "extend_many"])
def test_a_loss_is_told_whatever_else_has_failed(any_client: redis.Redis, verb: str) -> None:
    """One part of the filter is lost, and an earlier one refuses."""
    f: Any = BloomFilter(any_client, verb, **SIZE)
    claims = f.claim_many(["a", "b"])
    errors = [ServerRefusedError("no", "NOPERM"), FilterLostError("lost")]

    def attempt(requests: Any) -> Op[None]:
        for request, error in zip(requests, errors, strict=True):
            request.outcome = error
        yield Sleep(0)

    inside(f).attempt = attempt
    arguments = {"claim_many": (["c", "d"],), "extend_many": (claims, 9)}.get(verb, (claims,))
    with pytest.raises(FilterLostError, match="lost"):
        getattr(f, verb)(*arguments)


def test_a_retry_forgets_the_error_of_the_attempt_before(any_client: redis.Redis) -> None:
    """A part that cannot be asked at all fails a retry with its own error, which ends the patience."""
    f: Any = BloomFilter(any_client, "seen", **SIZE)
    claims = f.claim_many(["a", "b"])
    errors = iter([ServerRefusedError("no", "OOM"), FilterLostError("lost")])

    def on_items(_: object) -> Op[None]:
        raise next(errors)
        yield Sleep(0)

    inside(f).on_items = on_items
    with pytest.raises(FilterLostError, match="lost"):
        f.commit_many(claims)


def test_a_commit_without_a_reply_is_answered_later(any_server: Server, bloom: Any, clock: Clock) -> None:
    """The error carries the claim when its lease has ended; a retry gets the first call's answer."""
    with proxied(any_server.socket) as proxy:
        f = make(bloom, proxy.client())
        f.commit_many(f.claim_many(["warm"]))
        claims = f.claim_many(["a"])
        proxy.always("commit", after(lambda: clock.advance(10), lost))
        with pytest.raises(BloomError) as met:
            f.commit_many(claims)
        assert isinstance(met.value, BatchInterruptedError)
        assert met.value.rest == claims
        assert claims[0].lost
        proxy.always("commit", passed)
        assert f.commit_many(claims) == ["done"]


@for_each("retries", [0, 3])
def test_lost_replies_lose_no_batch(server: Server, retries: int) -> None:
    """With one reply in 33 lost, every item is claimed and committed once, and none is reported lost."""
    items, dice = [f"{i}" for i in range(600)], random.Random(1)
    with losing(server.socket, share=0.03) as proxy:
        make(BloomFilter, server.client()).create()
        f = make(BloomFilter, redis.Redis(port=proxy.port, **retrying(retries)))

        def answered(call: Any, rest: list[Any]) -> list[Any]:
            found: list[Any] = []
            while rest:
                try:
                    found, rest = found + call(rest), []
                except BatchInterruptedError as error:
                    found, rest = found + error.results, list(error.rest)
                except BloomError:
                    continue
            return found

        while items:
            batch = [items.pop() for _ in range(min(len(items), dice.choice((1, 7, 40))))]
            claims = answered(f.claim_many, batch)
            assert set(states(claims)) == {"claimed"}
            assert set(answered(f.commit_many, claims)) == {"done"}
        assert proxy.lost > 5
    assert make(BloomFilter, server.client()).info().count == 600


# -- named claims


def test_a_run_again_gets_its_claims(bloom: Any, client: redis.Redis) -> None:
    """A rerun gets its claims at once, others wait; the earlier run cannot commit, extend or release them."""
    before, again = make(bloom, client), make(bloom, client)
    old, second = before.claim_many(["a", "b"], owner="rank 7")
    assert states(again.claim_many(["a", "b"], owner="rank 8")) == ["busy", "busy"]
    assert again.claim("a").state == "busy"
    new = again.claim_many(["a", "b"], owner="rank 7")
    assert states(new) == ["claimed", "claimed"]
    assert before.release_many([second]) == ["released"]
    assert before.commit_many([old]) == ["lost"]
    assert again.commit_many(new) == ["done", "done"]


def test_what_a_name_has_done_stays_done(bloom: Any, client: redis.Redis) -> None:
    """A named claim's commits are final."""
    f = make(bloom, client)
    f.commit_many(f.claim_many(["a"], owner="rank 7"))
    assert f.claim("a", owner="rank 7").state == "done"


@for_each("seconds", [-3600.0, 0.0, 3600.0])
def test_the_clocks_of_two_runs_have_no_order(
    bloom: Any, any_client: redis.Redis, monkeypatch: pytest.MonkeyPatch, seconds: float
) -> None:
    """A run gets the claims of the run before it on a machine whose clock is ahead or behind, too."""
    old = make(bloom, any_client).claim_many(["a", "b"], owner="rank 7")
    monkeypatch.setattr(time, "time", partial(lambda clock: clock() + seconds, time.time))
    again = make(bloom, any_client)
    new = [again.claim("a", owner="rank 7"), *again.claim_many(["b"], owner="rank 7")]
    assert states(new) == ["claimed", "claimed"]
    assert again.commit_many(old) == ["lost", "lost"]
    assert again.commit_many(new) == ["done", "done"]


def test_late_copies_do_not_take_a_claim_back(any_server: Server) -> None:
    """A late copy of a claim changes nothing, nor does one of the call that replaced an earlier claim."""
    with proxied(any_server.socket) as proxy:
        make(BloomFilter, proxy.client()).claim("the server knows the script from now on")
        claim, replacement = LateCopy(), LateCopy()
        proxy.plan("claim", claim, passed, passed, replacement)
        runs = [make(BloomFilter, proxy.client(retries=1)) for _ in range(3)]
        claims = [f.claim("a", owner="rank 7") for f in runs]
        assert states(claims) == ["claimed"] * 3
        claim.arrive()
        replacement.arrive()
        assert runs[2].commit_many(claims) == ["lost", "lost", "done"]


def test_an_earlier_claim_of_an_object_takes_nothing_back(
    bloom: Any, client: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A claim that began before a later one of the same object and name, and arrives after it, is busy."""
    f = make(bloom, client)
    new = f.claim("a", owner="rank 7")
    new_owners = ClaimOptions.new_owners

    def earlier(options: ClaimOptions, sessions: Sessions, count: int) -> list[bytes]:
        (owner,) = new_owners(options, sessions, count)
        return [owner[:11] + ((int.from_bytes(owner[11:14]) - 10) % (1 << 24)).to_bytes(3) + owner[14:]]

    monkeypatch.setattr(ClaimOptions, "new_owners", earlier)
    late = f.claim("a", owner="rank 7")
    assert (late.state, late.is_own) == ("busy", True)
    assert 29 < late.remaining <= 30.001
    assert f.commit_many([new]) == ["done"]


def test_a_claim_knows_its_own_name(bloom: Any, any_client: redis.Redis) -> None:
    """`is_own` is true for an item that is busy under the claim's name, and in no other case."""
    f, other = make(bloom, any_client), make(bloom, any_client)
    first = f.claim("a", owner="rank 7")
    other.add("done")
    claims = [first, *(other.claim(item, owner="rank 8") for item in ("a", "done")), other.claim("a")]
    assert [(claim.state, claim.is_own) for claim in claims] == [
        *(("claimed", False), ("busy", False), ("done", False), ("busy", False))
    ]


@for_each(("between", "state", "is_own"), [("claim", "busy", True), ("delete", "claimed", False)])
def test_a_claim_that_changes_before_it_is_replaced(
    any_server: Server, between: str, state: str, *, is_own: bool
) -> None:
    """If another call has replaced it meanwhile, that call keeps the item; without it the item is free."""
    with proxied(any_server.socket) as proxy, any_server.client() as client:
        f, other = make(BloomFilter, proxy.client()), make(BloomFilter, client)
        first = other.claim("a", owner="rank 7")
        assert first
        f.claim("the server knows the script from now on")

        def change() -> None:
            if between == "claim":
                assert other.claim("a", owner="rank 7")
            else:
                client.delete(claim_key("seen", "a"))

        proxy.plan("claim", passed, after(change, passed))
        claim = f.claim("a", owner="rank 7")
        assert (claim.state, claim.is_own) == (state, is_own)
        copy = Claim.from_token(f, claim.token)
        assert (copy.state, copy.is_own) == (state, is_own)


def test_an_unanswered_claim_of_a_name_is_its_own(any_server: Server) -> None:
    """A retry by the same name gets the claim; another name, or none, gets "busy"."""
    with proxied(any_server.socket) as proxy:
        f = make(BloomFilter, proxy.client())
        f.claim("the server knows the script from now on")
        proxy.plan("claim", lost)
        with pytest.raises(BloomError):
            f.claim("a", owner="rank 7")
        assert f.claim("a").state == "busy"
        assert f.claim("a", owner="rank 7").state == "claimed"


@for_each(("owner", "error"), [("", ValueError), (7, TypeError), (b"rank", TypeError), (True, TypeError)])
def test_a_bad_owner_is_refused(bloom: Any, owner: Any, error: type[Exception]) -> None:
    """A bad owner is refused before any I/O."""
    f = make(bloom, redis.Redis(port=1))
    for call in (f.claim, f.claim_many):
        with pytest.raises(error, match="owner must"):
            call("a", owner=owner)


# -- tokens


@for_each("kind", KINDS)
@for_each("item", ["ä", b"\xff", -42])
def test_a_token_is_the_claim(any_server: Server, kind: str, item: Any) -> None:
    """Another object commits the claim by its token, with the original item."""
    cls = getattr(bloomredis, kind)
    f, other = (make(cls, any_server.client(), **KINDS[kind]) for _ in range(2))
    claim = f.claim(item, lease=5, owner="me")
    same = Claim.from_token(other, claim.token)
    assert (same.item, same.state) == (item, "claimed")
    assert 4 < same.remaining <= 5
    same.extend(10)
    same.commit()
    assert f.contains(item)
    with pytest.raises(ClaimLostError):
        claim.commit()


def test_a_token_has_the_commit_that_is_in_doubt(any_server: Server) -> None:
    """Another object with the token learns that the commit was executed."""
    with proxied(any_server.socket) as proxy:
        claim = make(BloomFilter, proxy.client()).claim("a")
        proxy.plan("commit", lost)
        with pytest.raises(BloomError):
            commit_once(claim)
    same = Claim.from_token(make(BloomFilter, any_server.client()), claim.token)
    same.commit()
    assert same.state == "done"


@for_each("kind", KINDS)
def test_a_token_for_an_object_that_is_behind(any_server: Server, kind: str) -> None:
    """An object that has not seen the last `clear()` raises or continues, and then commits the claim."""
    cls, client = getattr(bloomredis, kind), any_server.client()
    f, behind, follows = (
        make(cls, client, on_lost=on_lost, **KINDS[kind]) for on_lost in ("raise", "raise", "recreate")
    )
    for each in (f, behind, follows):
        each.create()
    f.clear()
    claims = f.claim_many(["a", "b"], lease=600)
    Claim.from_token(follows, claims[0].token).commit()
    late = Claim.from_token(behind, claims[1].token)
    with pytest.raises(FilterLostError):
        late.commit()
    behind.create()
    late.commit()
    assert f.contains_many(["a", "b"]) == [True, True]
    token = f.claim("c").token
    f.clear()
    with pytest.raises(ClaimLostError, match="another worker may have the item"):
        Claim.from_token(f, token).commit()
    assert not f.contains("c")


def test_a_bad_token_is_refused(any_client: redis.Redis) -> None:
    """A token of another filter or driver, or an invalid one, is refused."""
    f = make(BloomFilter, any_client)
    token = f.claim("a").token
    with pytest.raises(ValueError, match="another filter"):
        Claim.from_token(BloomFilter(any_client, "other", **SIZE), token)
    for bad in ("", token[:-1] + "x", token.replace("claim/", "")):
        with pytest.raises(ValueError, match="must be that of a claim"):
            Claim.from_token(f, bad)
    wrong: Any = bloomredis.asyncio.BloomFilter(redis.asyncio.Redis(), "seen")
    with pytest.raises(TypeError, match="not on"):
        Claim.from_token(wrong, token)
    with pytest.raises(TypeError, match="token must be a str"):
        Claim.from_token(f, 7)  # type: ignore[arg-type]  # tested on purpose


def test_an_item_of_ones_own_has_its_bytes(any_client: redis.Redis) -> None:
    """A token carries an item's bytes, not a program's objects."""
    f: Any = make(BloomFilter, any_client, encode=bytes)
    claim = f.claim((1, 2))
    same = Claim.from_token(f, claim.token)
    assert same.item == b"\x01\x02"
    same.commit()
    assert f.contains((1, 2))
