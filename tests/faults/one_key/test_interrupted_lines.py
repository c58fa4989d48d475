"""A thread is interrupted or delayed between any two lines of code that must not be divided."""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest
import redis

from bloomredis import BloomFilter, ClaimLostError, FilterLostError
from bloomredis.drivers.connections.direct import DirectClient
from bloomredis.operations.claims import calls
from bloomredis.stored.state.versioned import Versioned
from tests.support.background import PATIENCE, outcome, started
from tests.support.lines import Interrupt, at_line, interrupt
from tests.support.servers import Server
from tests.support.values import for_each

SIZE: dict[str, Any] = {"capacity": 1000, "error_rate": 1e-6}
MOST_LINES = 120


@pytest.fixture(autouse=True)
def collected() -> Iterator[None]:
    """Collect a pool that an interrupt left locked, here in the thread that holds the lock."""
    yield
    gc.collect()


def test_a_commit_that_is_interrupted(any_client: redis.Redis) -> None:
    """Wherever it was interrupted, a retry of the commit gets its outcome."""
    f = BloomFilter(any_client, "seen", **SIZE)
    for number in range(MOST_LINES):
        claim = f.claim(f"x{number}")
        with suppress(Interrupt), at_line(calls, number, interrupt) as lines:
            claim.commit()
        claim.commit()
        assert claim.state == "done"
        assert f"x{number}" in f
        if len(lines) <= number:
            return
    pytest.fail("the commit has more lines than were tried")


def test_a_commit_of_a_lost_claim_that_is_interrupted(any_client: redis.Redis) -> None:
    """A retry is not answered from the receipt of another call that has reused the session."""
    f, other = (BloomFilter(any_client, "seen", **SIZE) for _ in range(2))
    for number in range(MOST_LINES):
        claim = f.claim(f"x{number}")
        any_client.delete(*any_client.keys("{seen}:claim:*"))
        assert other.claim(f"x{number}")
        with suppress(Interrupt, ClaimLostError), at_line(calls, number, interrupt) as lines:
            claim.commit()
        f.add_many([f"{number}-{i}" for i in range(3)])
        f.add(f"{number}-4")
        with pytest.raises(ClaimLostError):
            claim.commit()
        assert f"x{number}" not in f
        if len(lines) <= number:
            return
    pytest.fail("the commit has more lines than were tried")


@for_each("number", range(3, 9))
def test_a_loss_that_is_being_noticed(any_client: redis.Redis, number: int) -> None:
    """Another thread that uses the object meanwhile gets the error, or waits for it."""
    f = BloomFilter(any_client, "seen", **SIZE)
    f.add("a")
    any_client.delete("seen")
    arrived, go_on = threading.Event(), threading.Event()

    def pause() -> None:
        arrived.set()
        assert go_on.wait(PATIENCE)

    def notice() -> None:
        with at_line(Versioned._lose, number, pause):  # the lines at which it waits
            f.contains("a")

    noticing = started(notice)
    while not (arrived.wait(0.01) or noticing.done()):
        pass
    meanwhile = started(lambda: f.add("b"))
    with suppress(TimeoutError):
        meanwhile.exception(0.3)
    go_on.set()
    assert isinstance(outcome(noticing), FilterLostError)
    assert isinstance(outcome(meanwhile), FilterLostError)
    with pytest.raises(FilterLostError):
        f.add("c")


def test_two_interrupts(any_server: Server) -> None:
    """After an interrupt of the wait and one at any later line, no other call reads that reply."""
    with any_server.client() as admin:
        for number in range(MOST_LINES):
            with any_server.client() as client:
                f = BloomFilter(client, f"seen-{number}", **SIZE)
                assert f.add("there")
                admin.execute_command("CLIENT", "PAUSE", 50, "ALL")
                with pytest.MonkeyPatch.context() as patch:
                    patch.setattr(client.connection_pool.connection_class, "read_response", _interrupted)
                    line = at_line(DirectClient.retry_through_client, number, interrupt)
                    with suppress(Interrupt), line as lines:
                        f.add("new")
                assert not f.contains("absent")
                assert f.contains("there")
                assert not f.contains("absent too")
            if len(lines) <= number:
                return
    pytest.fail("there are more lines than were tried")


def _interrupted(*_: Any, **__: Any) -> Any:
    raise Interrupt
