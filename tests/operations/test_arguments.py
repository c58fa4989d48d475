"""Bad arguments are refused before any I/O, with the value seen."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from functools import partial
from typing import Any

import pytest
import redis
import redis.asyncio

import bloomredis
import bloomredis.asyncio
from bloomredis import BloomFilter, FilterMismatchError, OutcomeUnknownError, ScalingBloomFilter, compat
from tests.support.values import for_each


class NoClient:
    """A client that fails when it is used."""

    def execute_command(self, *args: object, **options: object) -> None:
        raise AssertionError(f"I/O happened: {args!r}")

    def pipeline(self, *, transaction: bool) -> None:
        raise AssertionError("I/O is about to happen")

    def __enter__(self) -> None:
        raise AssertionError("I/O is about to happen")


@for_each(
    ("arguments", "error", "seen"),
    [
        ({"capacity": 0, "error_rate": 0.1}, ValueError, "at least 1, not 0"),
        ({"capacity": -5, "error_rate": 0.1}, ValueError, "-5"),
        ({"capacity": 1.5, "error_rate": 0.1}, TypeError, "float 1.5"),
        ({"capacity": "10", "error_rate": 0.1}, TypeError, "str '10'"),
        ({"capacity": True, "error_rate": 0.1}, TypeError, "True"),
        ({"capacity": 10, "error_rate": 0}, ValueError, "not 0.0"),
        ({"capacity": 10, "error_rate": 1}, ValueError, "not 1.0"),
        ({"capacity": 10, "error_rate": float("nan")}, ValueError, "nan"),
        ({"capacity": 10, "error_rate": "0.1"}, TypeError, "'0.1'"),
        ({"capacity": 10}, ValueError, "error_rate is missing"),
        ({"error_rate": 0.1}, ValueError, "capacity is missing"),
        ({"capacity": 10**12, "error_rate": 0.1}, ValueError, r"2\^32"),
        ({"capacity": 10, "error_rate": 0.1, "layout": "fancy"}, ValueError, "fancy"),
        ({"capacity": 10, "error_rate": 0.1, "ttl": 0}, ValueError, "not 0"),
        ({"capacity": 10, "error_rate": 0.1, "ttl": timedelta(seconds=-1)}, ValueError, "-1"),
        ({"capacity": 10, "error_rate": 0.1, "ttl": "1h"}, TypeError, "1h"),
        ({"ttl": 10}, ValueError, "capacity and error_rate"),
        ({"capacity": 10, "error_rate": 0.1, "ttl": 1e14}, ValueError, "at most 4503599627370 seconds"),
        ({"encode": "utf8"}, TypeError, "function of an item that returns bytes, not str 'utf8'"),
        ({"retry_safe": "no"}, TypeError, "True or False, not str 'no'"),
        ({"local_cache": "no"}, TypeError, "unless it is True or False, must be .* not 'no'"),
        ({"on_full": "ignore"}, ValueError, "on_full must be .* not 'ignore'"),
        ({"min_replicas": 10**30}, ValueError, "from 0 to 1000"),
    ],
)
def test_bad_parameters(arguments: dict[str, Any], error: type[Exception], seen: str) -> None:
    """The error names the value, and nothing is sent."""
    with pytest.raises(error, match=seen):
        BloomFilter(NoClient(), "f", **arguments)


@for_each("half", [bloomredis.BloomFilter, bloomredis.asyncio.BloomFilter])
def test_a_lease_has_its_name(half: Any) -> None:
    """A number after the item could be anything, so it is refused when the call is made."""
    client: Any = redis.Redis(port=1) if half is bloomredis.BloomFilter else redis.asyncio.Redis(port=1)
    seen = half(client, "seen", capacity=100, error_rate=0.01)
    for call in (seen.claim, seen.claim_many):
        with pytest.raises(TypeError, match="positional argument"):
            call("a", 5)


@for_each(("name", "error"), [("", ValueError), (b"f", TypeError), (None, TypeError)])
def test_bad_names(name: Any, error: type[Exception]) -> None:
    """A name must be a non-empty str."""
    with pytest.raises(error, match="name must"):
        BloomFilter(NoClient(), name)


@for_each(
    "call",
    [
        lambda f: f.add(1.5),
        lambda f: f.contains(True),
        lambda f: None in f,
        lambda f: f.add_many(["good", "good", object()]),
        lambda f: f.contains_many([b"good", ["bad"]]),
        lambda f: list(f.dedupe([3.0])),
        lambda f: f.add_many("one string"),
        lambda f: f.expire(True),
    ],
)
def test_bad_items(call: Callable[[BloomFilter], object]) -> None:
    """One bad item refuses the call, and nothing of its batch is sent."""
    with pytest.raises(TypeError):
        call(BloomFilter(NoClient(), "f", capacity=10, error_rate=0.1))


def test_an_empty_batch_does_no_io() -> None:
    """An empty list or an exhausted generator causes no round trip."""
    f = BloomFilter(NoClient(), "f", capacity=10, error_rate=0.1)
    assert f.add_many([]) == f.contains_many(iter(())) == list(f.dedupe([])) == []


def test_an_asyncio_client_is_refused() -> None:
    """The message names the class that takes the client."""
    with pytest.raises(TypeError, match=r"bloomredis\.asyncio"):
        BloomFilter(redis.asyncio.Redis(), "f")  # type: ignore[arg-type]  # tested on purpose


HALVES = [bloomredis, bloomredis.asyncio]
KINDS = [
    "BloomFilter",
    "CountingBloomFilter",
    "RotatingBloomFilter",
    "ScalingBloomFilter",
    "ShardedBloomFilter",
]
each_class = for_each("half,kind", [(half, kind) for half in HALVES for kind in KINDS])


def maker(half: Any, kind: str, **parameters: Any) -> Callable[..., Any]:
    """Return the class with its required arguments besides the client and the name."""
    window = {"window": 60} if kind == "RotatingBloomFilter" else {}
    return partial(getattr(half, kind), **{"capacity": 100, "error_rate": 0.01} | window | parameters)


@each_class
@for_each(
    ("wrong", "says"),
    [
        ("redis://user:secret@localhost", "not a str"),
        (None, "not NoneType None"),
        (redis.Redis, "the class Redis: call it"),
        (redis.Redis().connection_pool, "not a ConnectionPool: give redis.Redis"),
        (object(), "not object <"),
        (redis.Redis().pipeline(), "not a Pipeline: .* queue_add"),
        (redis.asyncio.Redis().pipeline(), "not a Pipeline: .* queue_add"),
    ],
)
def test_what_is_no_client_is_refused(half: Any, kind: str, wrong: Any, says: str) -> None:
    """The constructor says what it was given, and never shows a password."""
    with pytest.raises(TypeError, match=says) as caught:
        maker(half, kind)(wrong, "f")
    assert "secret" not in str(caught.value)


@each_class
@for_each("base,exponent", [(2, 63), (2, 64), (10, 30), (10, 400), (10, 5000)])
def test_no_capacity_overflows(half: Any, kind: str, base: int, exponent: int) -> None:
    """A huge capacity is a ValueError of one line in every class."""
    client = redis.Redis() if half is bloomredis else redis.asyncio.Redis()
    with pytest.raises(ValueError, match=r"at most 2\^63 - 1") as caught:
        maker(half, kind, capacity=base**exponent)(client, "f")
    assert len(str(caught.value)) < 200


_SURROGATE = r"without lone surrogates such as '\\ud800'"


@each_class
def test_a_name_that_utf_8_cannot_hold(half: Any, kind: str) -> None:
    """The constructor names the character."""
    client = redis.Redis() if half is bloomredis else redis.asyncio.Redis()
    with pytest.raises(ValueError, match=_SURROGATE):
        maker(half, kind)(client, "f\ud800")


def test_an_int_that_is_too_long() -> None:
    """Python writes at most 4,300 digits; the error is about the item."""
    with pytest.raises(ValueError, match="item has more than 4300 decimal digits"):
        BloomFilter(NoClient(), "f", capacity=100, error_rate=0.01).add(10**5000)


def test_an_owner_that_utf_8_cannot_hold() -> None:
    """The claim names the character."""
    with pytest.raises(ValueError, match=_SURROGATE):
        BloomFilter(NoClient(), "f", capacity=100, error_rate=0.01).claim("x", owner="f\ud800")


@for_each("kind", ["ScalingBloomFilter", "RotatingBloomFilter"])
def test_the_largest_capacity_can_be_used(any_client: redis.Redis, kind: str) -> None:
    """A filter of layers works at the largest capacity that its constructor accepts."""
    f = maker(bloomredis, kind, capacity=2**63 - 1, layout="classic")(any_client, "f")
    assert [f.add("a"), f.add("a")] == [True, False]


@for_each(
    "call",
    [
        lambda f: f.dedupe([{"id": 1}], key="id"),
        lambda f: f.once("work", key="id")(print),
        lambda f: BloomFilter(NoClient(), "f", encode="utf-8"),  # type: ignore[arg-type]  # tested on purpose
    ],
)
def test_a_function_is_asked_for_before_it_is_used(call: Callable[[Any], object]) -> None:
    """A text in the place of a function raises at once; the message has an example, or the arguments."""
    with pytest.raises(TypeError, match=r"must be a function of .*, not str '"):
        call(BloomFilter(NoClient(), "f", capacity=10, error_rate=0.1))


LONG: Any = "x" * 10**6


@for_each(
    "call",
    [
        lambda f: f.add("\ud800" * 10**6),
        lambda f: f.add_many(LONG),
        lambda f: f.add("a", token=LONG),
        lambda f: f.claim("a", lease=LONG),
        lambda f: f.expire(10**5000),
        lambda f: BloomFilter(NoClient(), "f", capacity=1, error_rate=0.1, ttl=LONG),  # tested on purpose
        lambda f: BloomFilter(NoClient(), "f", on_lost=LONG),
        lambda f: BloomFilter("f", NoClient()),  # type: ignore[arg-type]  # tested on purpose
        lambda f: BloomFilter(NoClient(), [LONG]),  # type: ignore[arg-type]  # tested on purpose
    ],
)
def test_messages_are_short(call: Callable[[Any], object]) -> None:
    """A message shows at most 100 characters of a caller's value."""
    with pytest.raises((TypeError, ValueError)) as caught:
        call(BloomFilter(NoClient(), "f", capacity=10, error_rate=0.1))
    assert len(str(caught.value)) < 300


def test_a_long_claim_is_shown_cut(any_client: redis.Redis) -> None:
    """The repr of a claim is cut, and so is the error of a lost one."""
    f = BloomFilter(any_client, "f", capacity=10, error_rate=0.1)
    claim = f.claim(LONG)
    any_client.delete("f")
    f.clear()
    with pytest.raises(bloomredis.ClaimLostError) as caught:
        claim.commit()
    assert len(repr(claim)) < 150
    assert len(str(caught.value)) < 350


def test_a_token_is_a_str() -> None:
    """The error names the type of anything else."""
    f = BloomFilter(NoClient(), "f", capacity=10, error_rate=0.1)
    with pytest.raises(TypeError, match="token must be a str, not int 5"):
        f.add("a", token=5)  # type: ignore[arg-type]  # tested on purpose


def test_calls_are_queued_on_pipelines_only(any_client: redis.Redis) -> None:
    """A client is refused: it would execute the calls at once, and their answers be lost."""
    f = BloomFilter(any_client, "f", capacity=10, error_rate=0.1)
    with pytest.raises(TypeError, match="pipe must be a pipeline"):
        f.queue_add(any_client, "a")
    assert "a" not in f


def test_encode_must_return_bytes() -> None:
    """The result of a custom encoder is checked."""
    f = BloomFilter(NoClient(), "f", capacity=10, error_rate=0.1, encode=str)  # type: ignore[arg-type]  # the point
    with pytest.raises(TypeError, match=r"encode must return bytes, not str for 1\.5"):
        f.add(1.5)  # type: ignore[arg-type]  # tested on purpose


ANY_FILTER: Any = BloomFilter
ANY_SCALING: Any = ScalingBloomFilter


@for_each(
    ("call", "way_out"),
    [
        (
            lambda client: ANY_FILTER(client, "f", capacity=10**10, error_rate=0.01),
            "use a ShardedBloomFilter",
        ),
        (lambda client: ANY_SCALING(client, "f", expansion=4), "expansion is read from the server"),
        (lambda client: ANY_FILTER(client, "f", capacity=1e6, error_rate=0.01), "write 1_000_000$"),
        (lambda client: ANY_FILTER("f", client), "the client comes first, then the name"),
    ],
)
def test_an_error_says_the_way_out(call: Callable[[redis.Redis], object], way_out: str) -> None:
    """And comes before any I/O."""
    with pytest.raises((TypeError, ValueError), match=way_out):
        call(redis.Redis(port=1))


def test_a_bitmap_of_another_system_without_its_layout(any_client: redis.Redis) -> None:
    """The error names the option that is missing."""
    BloomFilter(any_client, "f", layout=compat.go_zero(1000)).add("a")
    with pytest.raises(FilterMismatchError, match=r"of another system, give its layout= .*compat"):
        BloomFilter.open(any_client, "f")


def test_a_write_that_no_replica_confirms(any_client: redis.Redis) -> None:
    """The error says where the item is."""
    f = BloomFilter(any_client, "f", capacity=100, error_rate=0.01, min_replicas=1, replica_timeout=0.001)
    with pytest.raises(
        OutcomeUnknownError,
        match=r"is on the primary, but .*; repeat the call, which does no harm, or lower min_replicas",
    ):
        f.add("a")
