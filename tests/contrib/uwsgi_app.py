"""A WSGI application whose module is imported before uWSGI forks its workers."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterable
from typing import Any, Final

import redis

from bloomredis import BloomFilter

WORKERS: Final = int(os.environ["WORKERS"])

_client = redis.Redis(unix_socket_path=os.environ["SOCKET"])
_seen, _jobs = (
    BloomFilter[str](_client, name, capacity=100_000, error_rate=1e-9) for name in ("seen", "jobs")
)
_seen.add("warm")
with _jobs.claim("warm"):
    pass


@_jobs.once("work")
def work(job: str) -> bool:
    """Do a job."""
    return _client.incr(f"done {job}") > 0


def _meet(name: str) -> None:
    """Wait until each worker has a request."""
    _client.incr(name)
    deadline = time.monotonic() + 60
    while int(_client.get(name) or 0) < WORKERS:
        assert time.monotonic() < deadline
        time.sleep(0.001)  # polling a condition, with a deadline


def application(environ: dict[str, Any], start: Callable[..., Any]) -> Iterable[bytes]:
    """Add the items of a round and do its jobs; answer with the new items."""
    name, count = environ["PATH_INFO"].removeprefix("/"), int(environ["QUERY_STRING"])
    _meet(name)
    items = [f"{name}.{number}" for number in range(count)]
    new = [item for item in items if _seen.add(item)]
    for item in items:
        work(item)
    start("200 OK", [("Content-Type", "application/json")])
    return [json.dumps([os.getpid(), new]).encode()]
