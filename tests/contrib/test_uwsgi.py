"""uWSGI with its defaults: it forks in C once it has imported the application, without Python's hooks."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final

import httpx
import pytest
import redis

from bloomredis import BloomFilter, WorkItem
from tests.support.readme import ROOT
from tests.support.servers import Server
from tests.support.waiting import wait_until

WORKERS: Final = 4
ROUNDS: Final = 5
ITEMS: Final = 40
"""The number of items in a round; all workers get the same items at the same time."""


@pytest.fixture
def web(any_server: Server, tmp_path: Path) -> Iterator[httpx.Client]:
    """A client of an application with several workers."""
    address = tmp_path / "s"
    options = {
        "http-socket": address,
        "module": "tests.contrib.uwsgi_app",
        "processes": WORKERS,
        "home": sys.prefix,
    }
    command = [str(Path(sys.executable).with_name("uwsgi")), "--master", "--die-on-term", "--need-app"]
    command += [text for name, value in options.items() for text in (f"--{name}", str(value))]
    environ = os.environ | {"SOCKET": any_server.socket, "WORKERS": str(WORKERS), "PYTHONPATH": str(ROOT)}
    with (tmp_path / "log").open("wb") as log:
        process = subprocess.Popen(command, cwd=ROOT, env=environ, stdout=log, stderr=log)
    try:
        wait_until("uWSGI listens", address.exists)
        with httpx.Client(transport=httpx.HTTPTransport(uds=str(address)), timeout=60) as client:
            yield client
    finally:
        process.terminate()
        process.wait()


def test_workers_have_one_winner_an_item(web: httpx.Client, any_client: redis.Redis) -> None:
    """Each item is new once; each job is done once and committed."""
    new: list[str] = []
    for number in range(ROUNDS):

        def ask(_: int, number: int = number) -> Any:
            return web.get(f"http://app/{number}?{ITEMS}").raise_for_status().json()

        with ThreadPoolExecutor(WORKERS) as threads:
            answers = list(threads.map(ask, range(WORKERS)))
        assert len({process for process, _ in answers}) == WORKERS
        new += [item for _, items in answers for item in items]
    items = [f"{number}.{index}" for number in range(ROUNDS) for index in range(ITEMS)]
    assert Counter(new) == Counter(items)
    assert Counter(map(int, any_client.mget([f"done {item}" for item in items]))) == {1: len(items)}  # type: ignore[arg-type]
    jobs: Any = BloomFilter.open(any_client, "jobs")
    assert all(jobs.contains_many([WorkItem("work", item) for item in items]))
