"""The ledger of pending items has a bound, for those with an answer too."""

from __future__ import annotations

import pytest

from bloomredis.protocol import clock, ledger
from bloomredis.protocol.ledger import Ledger

GENERATION = b"12345678"


def test_kept_answers_have_a_bound(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    """Of more, the oldest are forgotten, and the log says so; the newest stay."""
    monkeypatch.setattr(ledger, "MOST_PENDING", 1000)
    kept = Ledger()
    for i in range(5000):
        kept.keep(f"{i}", GENERATION, answer=True)
    assert len(kept.items) <= 1000
    assert all(kept.find(f"{i}", GENERATION) for i in range(4100, 5000))
    assert kept.find("0", GENERATION) is None
    assert "the oldest 10 are forgotten" in caplog.text


def test_answers_and_calls_share_the_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever is oldest goes first, and a lost reply looks at no more than that."""
    monkeypatch.setattr(ledger, "MOST_PENDING", 1000)
    pending = Ledger()
    for i in range(1000):
        pending.keep(f"kept {i}", GENERATION, answer=True)
    pending.add(["sent"], "lane", "1.00000000", GENERATION, clock.now())
    assert pending.find("sent", GENERATION)
    assert len(pending.items) == 991
    assert pending.find("kept 9", GENERATION) is None
    assert pending.find("kept 10", GENERATION)
