"""Pending calls, stored answers and owners of claims share one limit."""

from __future__ import annotations

import pytest

from bloomredis.protocol import clock
from bloomredis.protocol import pending as module
from bloomredis.protocol.pending import PendingCalls

GENERATION = b"12345678"


def test_kept_answers_have_a_bound(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    """Above the limit the oldest are dropped, and the log says so; the newest stay."""
    monkeypatch.setattr(module, "MOST_PENDING", 1000)
    kept = PendingCalls()
    for i in range(5000):
        kept.leave(f"{i}", GENERATION, answer=True)
    assert len(kept.items) <= 1000
    assert all(kept.find(f"{i}", GENERATION) for i in range(4100, 5000))
    assert kept.find("0", GENERATION) is None
    assert "the oldest 10 are forgotten" in caplog.text


def test_answers_and_calls_share_the_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    """The oldest of either is dropped first, and a lost reply checks no more than that."""
    monkeypatch.setattr(module, "MOST_PENDING", 1000)
    pending = PendingCalls()
    for i in range(1000):
        pending.leave(f"kept {i}", GENERATION, answer=True)
    pending.add(["sent"], "session", "1.00000000", GENERATION, clock.now())
    assert pending.find("sent", GENERATION)
    assert len(pending.items) == 991
    assert pending.find("kept 9", GENERATION) is None
    assert pending.find("kept 10", GENERATION)


def test_owners_share_the_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    """Claims without an answer do not accumulate; the newest are claimed again under their owners."""
    monkeypatch.setattr(module, "MOST_PENDING", 1000)
    pending = PendingCalls()
    pending.leave("kept", GENERATION, answer=True)
    for i in range(5000):
        pending.store_owners(b"%d" % i, [b"owner %d" % i], clock.now() + 60)
    assert len(pending.items) + len(pending.owners) <= 1000
    assert pending.find("kept", GENERATION)
    for known, taken in ((b"4999", b"owner 4999"), (b"0", b"new")):
        own = [b"new"]
        pending.checkout_owners(known, own)
        assert own == [taken]
