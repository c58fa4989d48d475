"""Replies of another form, or with too few or too many answers, do not count as replies."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Final

import pytest

from bloomredis import (
    BatchInterruptedError,
    BloomError,
    BloomFilter,
    ConnectionFailedError,
    FilterMismatchError,
    OutcomeUnknownError,
    ScalingBloomFilter,
    ShardedBloomFilter,
)
from bloomredis.protocol import forms
from bloomredis.protocol.steps import Reply
from tests.support.proxy import Proxy, garbled
from tests.support.sharding import OPTIONS
from tests.support.values import for_each

SIZE: Final[dict[str, Any]] = {"capacity": 1000, "error_rate": 1e-9}
ITEMS: Final = ["a", "b", "c"]
NO_ANSWER: Final = [b"$0\r\n\r\n", b"*0\r\n", b"$-1\r\n", b"$3\r\nxyz\r\n"]
"""An empty reply, a list, nil, and another value."""
SHORT: Final = [*NO_ANSWER, b"$2\r\n01\r\n", b":1\r\n"]
"""Further replies: two answers, and one."""


@for_each("reply", [*NO_ANSWER, b"$4\r\n0000\r\n"])
@for_each("is_warm", [False, True])
def test_a_batch(any_proxy: Proxy, bloom: Any, reply: bytes, *, is_warm: bool) -> None:
    """The call has no answer, even an object's first: its items are new on retry."""
    name = f"{reply.hex()} {is_warm}"
    bloom(any_proxy.client(), name, **SIZE).add_many(["the", "script", "is", "there"])
    f = bloom(any_proxy.client(), name, **SIZE)
    f.create()
    if is_warm:
        f.add_many(["warm", "too"])
    any_proxy.plan("add", garbled(reply))
    with pytest.raises((BatchInterruptedError, OutcomeUnknownError)):
        f.add_many(ITEMS)
    assert f.add_many(ITEMS) == [True] * 3
    assert f.add_many(ITEMS) == [False] * 3


@for_each("reply", [b"$0\r\n\r\n", b"*0\r\n", b"$-1\r\n", b":7\r\n", b"$3\r\nxyz\r\n"])
def test_one_item(any_proxy: Proxy, bloom: Any, reply: bytes) -> None:
    """A single item has no answer either, and neither has its retry."""
    f = bloom(any_proxy.client(), reply.hex(), **SIZE)
    f.add("warm")
    any_proxy.plan("add", garbled(reply), garbled(reply))
    for _ in range(2):
        with pytest.raises(OutcomeUnknownError):
            f.add("a")
    assert [f.add("a"), f.add("a")] == [True, False]


@for_each("reply", [*SHORT, b"$4\r\n1111\r\n"])
def test_a_test_of_a_batch(any_proxy: Proxy, bloom: Any, reply: bytes) -> None:
    """A malformed reply says nothing about the presence of an item."""
    f = bloom(any_proxy.client(), reply.hex(), layout="classic", **SIZE)
    f.add_many(ITEMS)
    for _ in range(2):
        f.contains_many(ITEMS)
    any_proxy.plan("contains", garbled(reply))
    with pytest.raises((BatchInterruptedError, ConnectionFailedError)):
        f.contains_many(ITEMS)
    assert f.contains_many(ITEMS) == [True] * 3


GARBLED: Final = [*SHORT, b"*1\r\n:1\r\n", b"*2\r\n$1\r\nx\r\n:1\r\n", b"*3\r\n$2\r\nff\r\n$1\r\nx\r\n:1\r\n"]
"""Further replies: lists that are too short, no hexadecimal digits, a text in place of a number."""


@for_each("reply", [*GARBLED, b"$1\r\nb\r\n", b"$5\r\ncc 12\r\n", b"$4\r\nbc x\r\n"])
def test_claims(any_proxy: Proxy, bloom: Any, reply: bytes) -> None:
    """The call has no answer, and a retry has the claims."""
    f = bloom(any_proxy.client(), reply.hex(), **SIZE)
    f.release_many(f.claim_many(["warm", "too"]))
    any_proxy.plan("claim", garbled(reply))
    with pytest.raises((BatchInterruptedError, OutcomeUnknownError)):
        f.claim_many(ITEMS[:2], lease=60)
    assert [claim.state for claim in f.claim_many(ITEMS[:2], lease=60)] == ["claimed"] * 2


def test_fewer_claims_than_asked_for(any_proxy: Proxy, bloom: Any) -> None:
    """Only a filter that may be full answers fewer."""
    f = bloom(any_proxy.client(), "counting", kind="CountingBloomFilter", **SIZE)
    f.create()
    any_proxy.plan("claim", garbled(b"$4\r\nb 12\r\n"))
    with pytest.raises((BatchInterruptedError, OutcomeUnknownError)):
        f.claim_many(ITEMS[:2], lease=60)


LOOKS: Final[dict[str, Callable[..., Any]]] = {
    "describe": partial(BloomFilter, **SIZE),
    "describe_layers": partial(ScalingBloomFilter, **SIZE),
    "reserve_record": partial(ShardedBloomFilter, **OPTIONS),
}
"""Filters, by the script whose reply opens them."""


@for_each("reply", GARBLED)
@for_each("verb", LOOKS)
def test_a_look_at_the_filter(any_proxy: Proxy, verb: str, reply: bytes) -> None:
    """The call raises an error of this library; the filter is unchanged."""
    make, name = LOOKS[verb], f"{verb} {reply.hex()}"
    make(any_proxy.client(), name).add_many(ITEMS)
    f = make(any_proxy.client(), name)
    any_proxy.plan(verb, garbled(reply))
    with pytest.raises(BloomError):
        f.info()
    assert f.add_many(ITEMS) == [False] * 3


@for_each("reply", GARBLED)
@for_each("verb", ["reserve", "settle_record"])
def test_the_making_of_a_sharded_filter(any_proxy: Proxy, verb: str, reply: bytes) -> None:
    """The next client completes the creation."""
    name = f"{verb} {reply.hex()}"
    any_proxy.plan(verb, garbled(reply))
    with pytest.raises(BloomError):
        ShardedBloomFilter(any_proxy.client(), name, **OPTIONS).add_many(ITEMS)
    assert ShardedBloomFilter(any_proxy.client(), name, **OPTIONS).add_many(ITEMS) == [True] * 3


def test_forms() -> None:
    """A reply of each form is accepted, and one of another form is refused."""
    facts = b"", 1, [b"Size", 1], b"", b""
    cases: list[tuple[forms.Form[object], Reply, object, Reply]] = [
        (forms.integer, 1, 1, b"1"),
        (forms.data, b"", b"", 3),
        (forms.text, "a", "a", None),
        (forms.text_or_nil, None, None, 3),
        (forms.digits, b"12", 12, b"x"),
        (forms.state, [b"ff", 1, -1], (b"\xff", 1, -1), [b"f", 1, -1]),
        (forms.record, ["00", 1], (b"\0", 1), ["00", 1, 1]),
        (forms.texts, [b"a", "b"], [b"a", "b"], [1]),
        (forms.integers, [], [], b""),
        (forms.module_state, [b"", 1, [b"Size", 1], b"", b""], facts, [b"", 1, 1, b"", b""]),
        (forms.module_state, [b"", 1, {b"Size": 1}, b"", b""], facts, [b"", 1, {}, b""]),
    ]
    for form, right, says, wrong in cases:
        assert forms.read("verb", form, right) == says
        with pytest.raises(ConnectionFailedError, match="verb"):
            forms.read("verb", form, wrong)


@for_each("record", [b"zz", b"ff", b""])
def test_a_refusal_with_a_malformed_record(any_proxy: Proxy, record: bytes) -> None:
    """A filter cannot be followed to a layer that the refusal does not describe."""
    f = ScalingBloomFilter(any_proxy.client(), f"seen {record.hex()}", **SIZE)
    f.add("a")
    any_proxy.plan("contains", garbled(b"-BLOOMCHANGED %b\r\n" % record))
    with pytest.raises(FilterMismatchError, match="no filter that this release can use"):
        f.contains("a")
    assert f.contains("a")


@pytest.mark.parametrize("count", [1, 3])
def test_a_server_that_refuses_each_session(any_proxy: Proxy, bloom: Any, count: int) -> None:
    """No other client can have used a new session, so after two refusals the call fails."""
    f = bloom(any_proxy.client(), "seen", **SIZE)
    f.add_many(ITEMS)
    any_proxy.plan("add", *[garbled(b"-BLOOMLANE it is used\r\n")] * 2)
    with pytest.raises((BatchInterruptedError, OutcomeUnknownError)):
        f.add_many(["x", "y", "z"][:count])
