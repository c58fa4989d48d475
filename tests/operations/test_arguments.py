"""Bad input is refused before any I/O, with the value seen."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
import redis.asyncio

from bloomredis import BloomFilter


class NoClient:
    """A client that must not be asked."""

    def execute_command(self, *args: object, **options: object) -> None:
        raise AssertionError(f"I/O happened: {args!r}")

    def pipeline(self, *, transaction: bool) -> None:
        raise AssertionError("I/O is about to happen")

    def __enter__(self) -> None:
        raise AssertionError("I/O is about to happen")


@pytest.mark.parametrize(
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
    ],
)
def test_bad_parameters(arguments: dict[str, Any], error: type[Exception], seen: str) -> None:
    """Each names the value, and nothing is sent."""
    with pytest.raises(error, match=seen):
        BloomFilter(NoClient(), "f", **arguments)


@pytest.mark.parametrize(("name", "error"), [("", ValueError), (b"f", TypeError), (None, TypeError)])
def test_bad_names(name: Any, error: type[Exception]) -> None:
    """A name is a str with something in it."""
    with pytest.raises(error, match="name must"):
        BloomFilter(NoClient(), name)


@pytest.mark.parametrize(
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
    """Neither an empty list nor an exhausted generator is worth a round trip."""
    f = BloomFilter(NoClient(), "f", capacity=10, error_rate=0.1)
    assert f.add_many([]) == f.contains_many(iter(())) == list(f.dedupe([])) == []


def test_an_asyncio_client_is_refused() -> None:
    """The message says which class takes it."""
    with pytest.raises(TypeError, match=r"bloomredis\.asyncio"):
        BloomFilter(redis.asyncio.Redis(), "f")  # type: ignore[arg-type]  # the point


def test_encode_must_return_bytes() -> None:
    """A custom encoder is checked too."""
    f = BloomFilter(NoClient(), "f", capacity=10, error_rate=0.1, encode=str)  # type: ignore[arg-type]  # the point
    with pytest.raises(TypeError, match=r"encode must return bytes, not str for 1\.5"):
        f.add(1.5)  # type: ignore[arg-type]  # so is this
