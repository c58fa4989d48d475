"""Replies that have the answers to fewer or more items than were asked about are none."""

from __future__ import annotations

from typing import Any, Final

import pytest

from bloomredis import BatchInterruptedError, ConnectionFailedError, OutcomeUnknownError
from tests.support.proxy import Proxy, garbled
from tests.support.values import for_each

SIZE: Final[dict[str, Any]] = {"capacity": 1000, "error_rate": 1e-9}
ITEMS: Final = ["a", "b", "c"]
SHORT: Final = [b"$0\r\n\r\n", b"$2\r\n01\r\n", b"*0\r\n", b"$-1\r\n", b":1\r\n", b"$3\r\nxyz\r\n"]
"""An empty reply, two answers, a list, nil, a number, and something else."""


@for_each("reply", [*SHORT, b"$4\r\n0000\r\n"])
@for_each("is_warm", [False, True])
def test_a_batch(any_proxy: Proxy, bloom: Any, reply: bytes, *, is_warm: bool) -> None:
    """It is a call without an answer: its items are new to who asks again.  So is the first of an object."""
    name = f"{reply.hex()} {is_warm}"
    bloom(any_proxy.client(), name, **SIZE).add_many(["the", "script", "is", "there"])
    f = bloom(any_proxy.client(), name, **SIZE)
    f.reserve()
    if is_warm:
        f.add_many(["warm", "too"])
    any_proxy.plan("add", garbled(reply))
    with pytest.raises((BatchInterruptedError, OutcomeUnknownError)):
        f.add_many(ITEMS)
    assert f.add_many(ITEMS) == [True] * 3
    assert f.add_many(ITEMS) == [False] * 3


@for_each("reply", [b"$0\r\n\r\n", b"*0\r\n", b"$-1\r\n", b":7\r\n", b"$3\r\nxyz\r\n"])
def test_one_item(any_proxy: Proxy, bloom: Any, reply: bytes) -> None:
    """The same for a single one, also when it is asked about again."""
    f = bloom(any_proxy.client(), reply.hex(), **SIZE)
    f.add("warm")
    any_proxy.plan("add", garbled(reply), garbled(reply))
    for _ in range(2):
        with pytest.raises(OutcomeUnknownError):
            f.add("a")
    assert [f.add("a"), f.add("a")] == [True, False]


@for_each("reply", [*SHORT, b"$4\r\n1111\r\n"])
def test_a_test_of_a_batch(any_proxy: Proxy, bloom: Any, reply: bytes) -> None:
    """It is no answer, whether an item is there or not."""
    f = bloom(any_proxy.client(), reply.hex(), layout="classic", **SIZE)
    f.add_many(ITEMS)
    for _ in range(2):
        f.contains_many(ITEMS)
    any_proxy.plan("contains", garbled(reply))
    with pytest.raises((BatchInterruptedError, ConnectionFailedError)):
        f.contains_many(ITEMS)
    assert f.contains_many(ITEMS) == [True] * 3
