"""Errors of the library, translated for the command line."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import redis

import bloomredis
from bloomredis.cli.messages import in_options
from bloomredis.embedded import connect
from tests.support.values import for_each


def held(client: redis.Redis) -> bloomredis.BloomFilter:
    """Create the filter `held`."""
    made = bloomredis.BloomFilter(client, "held", capacity=77, error_rate=0.02)
    made.reserve()
    return made


def lost(client: redis.Redis) -> None:
    """Use a filter that was deleted."""
    made = held(client)
    made.add("x")
    client.flushall()
    made.add("y")


ERRORS: dict[str, tuple[Callable[[redis.Redis], object], str]] = {
    "missing": (lambda client: bloomredis.BloomFilter.open(client, "x"), "bloomredis create makes one"),
    "other capacity": (
        lambda client: bloomredis.BloomFilter(
            client, held(client).name, capacity=1000, error_rate=0.01
        ).reserve(),
        "leave the option out to take what is stored",
    ),
    "another kind": (
        lambda client: bloomredis.ScalingBloomFilter.open(client, held(client).name),
        "holds no filter of --kind scaling",
    ),
    "too large": (
        lambda client: bloomredis.BloomFilter(client, "x", capacity=10**11, error_rate=0.01),
        "spread the filter over several keys (--kind sharded)",
    ),
    "bad rate": (
        lambda client: bloomredis.BloomFilter(client, "x", capacity=10, error_rate=2),
        "--error-rate must",
    ),
    "half": (lambda client: bloomredis.BloomFilter(client, "x", capacity=10), "--capacity and --error-rate"),
    "lost": (lost, "`bloomredis clear` starts empty"),
}


@for_each(("fail", "words"), ERRORS.values())
def test_options_not_python(fail: Callable[[redis.Redis], object], words: str) -> None:
    """A message names options and commands, and no parameter, class or call."""
    with pytest.raises((bloomredis.BloomError, ValueError)) as caught:
        fail(connect("memory://"))
    text = in_options(caught.value)
    assert words in text
    assert not any(python in text for python in ("()", "error_rate", "BloomFilter", "None"))


def test_a_doubt_is_told_without_tokens() -> None:
    """The message of an unknown outcome omits tokens, since the command has none."""
    error = bloomredis.OutcomeUnknownError(
        "a call on 'x' may or may not have been executed (Error 9); ask again with the token of this error"
    )
    assert in_options(error) == "a call on 'x' may or may not have been executed (Error 9)"
