"""Web workers are killed, or lose their filter, while senders deliver requests until they get an answer."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import httpx

from tests.contrib.violence import KEPT, acknowledge, restarting
from tests.support.readme import ROOT
from tests.support.servers import Server, running
from tests.support.waiting import PATIENCE, wait_until

SENDERS = 8
WORKERS = 5


@contextmanager
def worker(address: Path, notes: Server, seen: Server) -> Iterator[subprocess.Popen[bytes]]:
    """Run a worker that listens at a unix socket; kill it at the end."""
    environ = os.environ | {"BLOOMREDIS_TEST_SOCKET": notes.socket, "BLOOMREDIS_TEST_FILTER": seen.url}
    command = [sys.executable, "-m", "uvicorn", "tests.contrib.web_app:app", "--uds", str(address)]
    with subprocess.Popen([*command, "--log-level", "critical"], cwd=ROOT, env=environ) as process:
        try:
            wait_until("it listens", address.exists)
            yield process
        finally:
            process.kill()


def client_of(address: Path) -> httpx.Client:
    """Return a client of the worker at a socket."""
    return httpx.Client(transport=httpx.HTTPTransport(uds=str(address)), timeout=60)


@contextmanager
def workers(addresses: Sequence[Path], notes: Server, seen: Server) -> Iterator[list[httpx.Client]]:
    """Run workers; yield a client of each."""
    with ExitStack() as stack:
        for address in addresses:
            stack.enter_context(worker(address, notes, seen))
        yield [stack.enter_context(client_of(each)) for each in addresses]


def delivered(workers: list[httpx.Client], path: str, headers: dict[str, str]) -> int:
    """Deliver a request to the workers in turn until one answers 200; return the number of attempts."""
    deadline = time.monotonic() + PATIENCE
    for number in range(10_000):
        assert time.monotonic() < deadline
        try:
            answer = workers[number % len(workers)].post(f"http://app{path}", headers=headers)
        except httpx.TransportError:
            continue
        if answer.status_code == 200:
            return number + 1
        assert answer.status_code in (409, 503)
        time.sleep(0.1)  # a sender that is less patient than Retry-After
    raise AssertionError(path)


def test_no_request_is_lost_or_worked_on_twice(any_server: Server, tmp_path: Path) -> None:
    """A worker is killed, and the server is away for a second; only the worker's requests may run twice."""
    paths = [f"/{kind}/{number}" for number in range(100) for kind in ("payments", "events")]
    notes: Any = any_server.client(decode_responses=True)
    with ExitStack() as stack:
        seen = stack.enter_context(running(any_server.binary, *KEPT))
        addresses = [tmp_path / "a", tmp_path / "b"]
        first, _ = (stack.enter_context(worker(each, any_server, seen)) for each in addresses)
        clients = [stack.enter_context(client_of(each)) for each in addresses]
        stack.enter_context(restarting(seen, lambda: notes.llen("done") > 120))
        senders = stack.enter_context(ThreadPoolExecutor(SENDERS))
        for path in paths * 2:
            senders.submit(
                delivered, clients, path, {"X-Id": path, "Idempotency-Key": path}
            ).add_done_callback(lambda done: done.result())
        wait_until("a part is done", lambda: notes.llen("done") > 50)
        first.send_signal(signal.SIGKILL)
        before = notes.llen("done")
        senders.shutdown()
        assert before < len(paths)
    counted = Counter(notes.lrange("done", 0, -1))
    assert len(counted) == len(paths)
    assert sum(counted.values()) - len(counted) <= SENDERS


def test_one_acknowledgement_is_for_all_workers(any_server: Server, tmp_path: Path) -> None:
    """After a loss every worker answers 503 until an operator acknowledges it; then every worker goes on."""
    notes: Any = any_server.client(decode_responses=True)
    addresses = [tmp_path / str(number) for number in range(WORKERS)]
    with running(any_server.binary, *KEPT) as seen, workers(addresses, any_server, seen) as clients:

        def answers(*events: str) -> list[int]:
            return [
                each.post(f"http://app/events/{event}", headers={"X-Id": event}).status_code
                for each, event in zip(clients, events, strict=True)
            ]

        assert answers(*"abcde") == [200] * WORKERS
        with seen.client() as client:
            client.flushall()
        assert answers(*"fghij") == answers(*"fghij") == [503] * WORKERS
        acknowledge(seen, "events", "--capacity", "10000", "--error-rate", "1e-9")
        assert answers(*"fffff") == answers(*"abcde") == [200] * WORKERS
    assert notes.lrange("done", 0, -1) == [f"event {each}" for each in "abcdefabcde"]
