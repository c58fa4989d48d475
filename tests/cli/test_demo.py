"""`bloomredis demo`, run as a separate process on real servers."""

from __future__ import annotations

import os
import re
import signal

import numpy as np
import pytest

from bloomredis.cli.demo import race
from tests.support.commands import printed, run_process, started
from tests.support.servers import Server
from tests.support.values import for_each


def test_demo(any_server: Server) -> None:
    """No click is processed twice, the sums add up, no key remains on the server, no password is shown."""
    url = any_server.url.replace("unix://", "unix://default:hunter2@")
    text = printed("demo", "--url", url, "--events", 20_000, "--workers", 3, run=run_process).decode()
    rows = {
        found[1]: int(found[2].replace(",", ""))
        for found in re.finditer(r"^(\w[\w ]+?)  +([\d,]+)", text, re.MULTILINE)
    }
    assert rows["events"] == 20_000
    assert rows["processed twice"] == 0
    assert rows["processed once"] + rows["missed"] == rows["distinct clicks"]
    assert rows["missed"] < 0.002 * rows["distinct clicks"]
    assert any_server.keys() == []
    assert "hunter2" not in text


def test_demo_ended_by_a_signal(any_server: Server) -> None:
    """SIGTERM ends the demo and its workers; the filter is deleted."""
    with started("demo", "--url", any_server.url, "--events", 5_000_000) as process:
        assert process.stdout is not None
        assert process.stdout.read(6) == b"Worker"
        process.send_signal(signal.SIGTERM)
        process.communicate()
    assert process.returncode == 128 + signal.SIGTERM
    assert any_server.keys() == []


def test_stream_is_what_the_demo_says() -> None:
    """Clicks are numbered by first occurrence, some 70% of events; many repeats come close together."""
    clicks = race.stream(100_000, seed=5)
    numbers, first_occurrences = np.unique(clicks, return_index=True)
    assert (numbers == np.arange(len(numbers))).all()
    assert (np.diff(first_occurrences) > 0).all()
    assert 0.69 < len(numbers) / len(clicks) < 0.71
    assert (np.diff(clicks) == 0).mean() > 0.05


class Deadly(str):
    """A URL that ends the process which receives it."""

    __slots__ = ()

    def __reduce__(self) -> tuple[object, ...]:
        return os._exit, (1,)


@for_each(("url", "message"), [(Deadly("x"), "ended before"), ("unix:///no/such", "a worker failed")])
def test_worker_that_fails(url: str, message: str) -> None:
    """A worker that dies or cannot work is an error at once, instead of an endless wait."""
    with pytest.raises(race.RaceError, match=message):
        race.run(race.Race(url=url, name="x", capacity=70, error_rate=0.1, events=100, workers=2, seed=1))
