"""Celery's own workers, over a broker on a real server."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import redis
from celery.exceptions import Ignore, ImproperlyConfigured

from tests.support.readme import ROOT, on_page
from tests.support.servers import Server
from tests.support.waiting import wait_until


@pytest.fixture
def tasks(any_server: Server, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The module of the tasks, over the server."""
    monkeypatch.setenv("BLOOMREDIS_TEST_SOCKET", any_server.socket)
    from tests.contrib import tasks

    tasks.seen.reserve()
    return tasks


@contextmanager
def worker(name: str, processes: int = 2) -> Iterator[subprocess.Popen[bytes]]:
    """Run a worker of some processes, in a group of its own."""
    command = [sys.executable, "-m", "celery", "-A", "tests.contrib.tasks", "worker", "-n", name]
    process = subprocess.Popen(
        [*command, "-c", str(processes), "--loglevel", "ERROR", "--without-gossip", "--without-mingle"],
        cwd=ROOT,
        start_new_session=True,
        stderr=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        env=os.environ | {"C_FORCE_ROOT": "1"},
    )
    try:
        yield process
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def notes(tasks: Any) -> list[list[str]]:
    """Return the notes of the bodies."""
    return [note.split() for note in tasks.notes.lrange("notes", 0, -1)]


def is_drained(server: Server) -> bool:
    """True if the broker has no message, neither waiting nor with a worker."""
    with redis.Redis(unix_socket_path=server.socket, db=1) as broker:
        pipe = broker.pipeline()
        pipe.llen("celery")
        pipe.hlen("unacked")
        return not any(pipe.execute())


def is_in_the_middle(noted: list[list[str]], worker: subprocess.Popen[bytes]) -> bool:
    """True if a worker has not come far with a body, while a few bodies have ended."""
    mine = [note for note in noted if os.getpgid(int(note[2])) == worker.pid]
    if not mine or mine[-1][0] == "end" or len([note for note in noted if note[0] == "end"]) < 4:
        return False
    _, item, _, at = mine[-1]
    return time.time() - float(at) < (2.5 if item == "long" else 0.15)


def test_a_body_completes_once_for_each_item(tasks: Any, any_server: Server) -> None:
    """Sent three times, one longer than the visibility timeout, with a worker killed: never twice at once."""
    items = ["long", *(f"item-{number}" for number in range(40))]
    with worker("one", 1) as one, worker("two"):
        tasks.work.delay("long", 2.5 * tasks.VISIBILITY)
        for _ in range(3):
            for item in items[1:]:
                tasks.work.delay(item, 0.3)
        wait_until("it works while others have ended", lambda: is_in_the_middle(notes(tasks), one))
        os.killpg(one.pid, signal.SIGKILL)
        one.wait()
        tasks.notes.rpush("notes", "killed - - 0")
        wait_until("the broker is drained", lambda: is_drained(any_server), every=0.05)
    noted = notes(tasks)
    killed = noted.index(["killed", "-", "-", "0"])
    assert sorted(item for verb, item, *_ in noted if verb == "end") == sorted(items)
    assert len(noted) == 2 * len(items) + 2  # one body was cut off, and there is the note of that
    for item in items:
        mine = [(at, verb, by) for at, (verb, name, by, _) in enumerate(noted) if name == item]
        *cut, begun, ended = mine
        assert [(verb, at < killed) for at, verb, _ in cut] in ([], [("begin", True)])
        assert not cut or begun[0] > killed
        assert (begun[1], ended[1], begun[2]) == ("begin", "end", ended[2])


def test_the_result_stays_that_of_the_run(tasks: Any, any_server: Server) -> None:
    """A copy that comes while the body runs does not change it."""
    with worker("three"):
        result = tasks.work.apply_async(("item", 1.0), task_id="one-id")
        wait_until("the body runs", lambda: notes(tasks))
        tasks.work.apply_async(("item", 1.0), task_id="one-id")
        assert result.get(timeout=30) == "item"
        wait_until("the broker is drained", lambda: is_drained(any_server), every=0.05)
        assert (result.state, len(notes(tasks))) == ("SUCCESS", 2)


def test_a_retry_of_its_own_gives_the_item_back(tasks: Any) -> None:
    """The body runs again, and then the item is done."""
    assert tasks.second_time.apply(("item",)).get() == 1
    assert tasks.second_time.apply(("item",)).state == "IGNORED"


def test_a_direct_call_runs_once(tasks: Any) -> None:
    """The second raises `Ignore`, as does one while the item is busy."""
    assert tasks.work("item", 0) == "item"
    with pytest.raises(Ignore, match="done"):
        tasks.work("item", 0)
    with tasks.seen.claim(tasks.work.item(("other", 0), {})), pytest.raises(Ignore, match="busy"):
        tasks.work("other", 0)


def test_the_item_is_made_of_the_arguments(tasks: Any) -> None:
    """By name, however they are given."""
    assert tasks.work.item(("a", 1), {}) == tasks.work.item((), {"item": "a", "seconds": 2})
    assert tasks.work.item(("a", 1), {}) != tasks.work.item(("b", 1), {})
    assert tasks.work.item(("a", 1), {}) == '["tests.contrib.tasks.work", {"item": "a"}]'


def test_a_task_without_a_filter_says_so(tasks: Any) -> None:
    """When it is called."""

    @tasks.app.task(base=tasks.Once)
    def bare() -> None: ...

    with pytest.raises(ImproperlyConfigured, match="seen="):
        bare()


def test_the_example_of_the_page_runs(any_server: Server) -> None:
    """Its task ships an order once."""
    (block,) = [each for each in on_page(ROOT / "docs" / "celery.md") if each.language == "python"]
    names: dict[str, Any] = {"__name__": "shop"}
    text = re.sub("redis://localhost", any_server.url, block.text)
    exec(text, names)  # noqa: S102 - the project's own page
    assert names["ship"].apply(("order-1", "rail")).get() == "order-1 by rail"
    assert names["ship"].apply(("order-1", "road")).state == "IGNORED"
