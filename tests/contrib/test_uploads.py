"""Uploads to real servers: cut off in the middle, repeated, or with two keys."""

from __future__ import annotations

import http.client
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

import pytest

import bloomredis
from tests.contrib.upload_app import OPTIONS
from tests.support.readme import ROOT
from tests.support.servers import IN_MEMORY, binaries, running
from tests.support.waiting import PATIENCE, wait_until

LARGE: Final = 20_000_000
"""Bytes of an upload that fits into no buffer between a sender and a server."""
LENGTH: Final = 200_000
PYTHON: Final = [sys.executable, "-m"]
SERVERS: Final = {
    "gunicorn sync": [*PYTHON, "gunicorn", "tests.contrib.upload_app:wsgi", "-k", "sync", "-b", "unix:{}"],
    "gunicorn gthread": [
        *PYTHON,
        "gunicorn",
        "tests.contrib.upload_app:wsgi",
        "-k",
        "gthread",
        "-b",
        "unix:{}",
    ],
    "uwsgi": [
        *(str(Path(sys.executable).with_name("uwsgi")), "--master", "--die-on-term", "--need-app"),
        *("--home", sys.prefix, "--module", "tests.contrib.upload_app:wsgi", "--http-socket", "{}"),
    ],
    "uvicorn": [
        *PYTHON,
        "uvicorn",
        "tests.contrib.upload_app:asgi",
        "--uds",
        "{}",
        "--log-level",
        "critical",
    ],
}


class Web:
    """A server of applications, at a unix socket."""

    def __init__(self, address: Path, filters: str, *, is_asgi: bool) -> None:
        self._address = str(address)
        self.filters = filters
        self.is_asgi = is_asgi

    def connect(self) -> socket.socket:
        """Return a connection."""
        found = socket.socket(socket.AF_UNIX)
        found.settimeout(60)
        found.connect(self._address)
        return found

    def listens(self) -> bool:
        """Return True once the server accepts connections, which is later than its socket exists."""
        with suppress(OSError), self.connect():
            return True
        return False

    def head(self, path: str, keys: list[str], kind: str, length: int) -> bytes:
        """Return the head of a request."""
        key = "X-Id" if path.startswith("/once/") else "Idempotency-Key"
        token = "a" * 32
        lines = [
            *(f"POST {path} HTTP/1.1", "Host: here", "Connection: close"),
            *(f"{key}: {each}" for each in keys),
            *(f"Content-Type: {kind}", f"Content-Length: {length}"),
            *(f"Cookie: csrftoken={token}", f"X-CSRFToken: {token}"),  # for the view that asks for them
        ]
        return "\r\n".join([*lines, "", ""]).encode()

    def cut_off(self, path: str, key: str, kind: str, body: bytes) -> None:
        """Send half of the body, and hang up."""
        with self.connect() as sender:
            sender.sendall(self.head(path, [key], kind, len(body)) + body[: len(body) // 2])
            sender.shutdown(socket.SHUT_WR)
            with suppress(ConnectionError):
                while sender.recv(65536):
                    pass  # until the server has ended the request

    def send(self, path: str, keys: list[str], kind: str, body: bytes) -> tuple[int, bytes]:
        """Send a request as senders do, who read the answer after the body; return its status and content."""
        with self.connect() as sender:
            sender.sendall(self.head(path, keys, kind, len(body)))
            sender.sendall(body)
            answer = http.client.HTTPResponse(sender)
            answer.begin()
            return answer.status, answer.read()

    def deliver(self, path: str, key: str, kind: str, body: bytes) -> bytes:
        """Send a request until it is not refused; return the content of the answer."""
        deadline = time.monotonic() + PATIENCE
        while True:
            status, content = self.send(path, [key], kind, body)
            if status == 200:
                return content
            assert status == 409, content
            assert time.monotonic() < deadline
            time.sleep(0.05)  # polling a condition, with a deadline


@pytest.fixture(scope="module", params=SERVERS)
def web(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Web]:
    """A web server of each kind."""
    address = tmp_path_factory.mktemp("web") / "s"
    is_asgi = request.param == "uvicorn"
    with (
        running(next(iter(binaries().values())), *IN_MEMORY) as server,
        address.with_name("log").open("wb") as log,
    ):
        environ = os.environ | {
            "BLOOMREDIS_TEST_FILTER": server.url,
            "BLOOMREDIS_TEST_KIND": "asgi" if is_asgi else "wsgi",
            "PYTHONPATH": str(ROOT),
        }
        command = [part.format(address) for part in SERVERS[request.param]]
        with subprocess.Popen(command, cwd=ROOT, env=environ, stdout=log, stderr=log) as process:
            try:
                found = Web(address, server.url, is_asgi=is_asgi)
                wait_until("it listens", lambda: found.listens() or process.poll() is not None)
                assert process.poll() is None, address.with_name("log").read_text()
                yield found
            finally:
                process.terminate()


def upload(way: str, length: int) -> tuple[str, bytes, int]:
    """Return the type and the body of an upload, and the number of bytes that the application takes."""
    if way == "form":
        body = b"a=1&b=".ljust(length, b"x")
        return "application/x-www-form-urlencoded", body, length - len("a=1&b=")
    if way in ("file", "csrf"):
        head = b'--B\r\nContent-Disposition: form-data; name="f"; filename="f"\r\n\r\n'
        content = length - len(head) - len(tail := b"\r\n--B--\r\n")
        return "multipart/form-data; boundary=B", head + b"x" * content + tail, content
    return "application/octet-stream", (b"x" * 999 + b"\n") * (length // 1000), length * (way != "unread")


WAYS: Final = {
    "flask": ["body", "stream", "form", "file"],
    "django": ["body", "stream", "form", "file", "csrf"],
    "raw": ["body", "stream", "lines"],
}
ASGI_WAYS: Final = {"fastapi": ["body"], "once": ["body"], "raw": ["body"]}
DONE: Final = b"was processed already"


def test_an_upload_that_was_cut_off_runs_again(web: Web, subtests: pytest.Subtests) -> None:
    """With the same key; the second time the application gets all of it."""
    for app, ways in (ASGI_WAYS if web.is_asgi else WAYS).items():
        for way in ways:
            with subtests.test(app=app, way=way):
                kind, body, taken = upload(way, LENGTH)
                web.cut_off(f"/{app}/{way}", f"cut {way}", kind, body)
                assert web.deliver(f"/{app}/{way}", f"cut {way}", kind, body) == str(taken).encode()
                assert DONE in web.deliver(f"/{app}/{way}", f"cut {way}", kind, body)


def test_an_upload_that_nobody_reads_is_done_though_it_was_cut_off(
    web: Web, subtests: pytest.Subtests
) -> None:
    """The work did not need it."""
    for app in ASGI_WAYS if web.is_asgi else WAYS:
        with subtests.test(app=app):
            kind, body, _ = upload("unread", LENGTH)
            web.cut_off(f"/{app}/unread", "cut", kind, body)
            assert DONE in web.deliver(f"/{app}/unread", "cut", kind, body)


KEYS: Final = {200: ["done"], 409: ["held"], 400: ["two", "keys"], 503: ["new"]}
"""The keys of a request that gets this answer in place of the application's."""


def test_a_sender_of_a_large_upload_gets_its_answer(web: Web, subtests: pytest.Subtests) -> None:
    """The sender reads nothing before it has sent everything; the application does not run."""
    kind, body, _ = upload("body", LARGE)
    for app in [*(ASGI_WAYS if web.is_asgi else WAYS), "away"]:
        path = f"/{app}/body"
        for status in [503] if app == "away" else [200, 409, 400]:
            with subtests.test(app=app, status=status):
                if status == 200:
                    assert web.send(path, KEYS[status], kind, body[:1000])[0] == 200
                elif status == 409:
                    one = bloomredis.WorkItem(f"POST {path}", "held")
                    item = one if app == "once" else f"POST {path} held"
                    bloomredis.BloomFilter.from_url(web.filters, app, **OPTIONS).claim(item, lease=600)
                found, content = web.send(path, KEYS[status], kind, body)
                assert (found, b"detail" in content) == (status, True)
