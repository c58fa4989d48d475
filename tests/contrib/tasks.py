"""A Celery application, whose first task notes the beginning and the end of its body in a list."""

from __future__ import annotations

import os
import time
from typing import Any

import redis
from celery import Celery

from bloomredis import BloomFilter
from bloomredis.contrib.celery import Once

SOCKET = os.environ["BLOOMREDIS_TEST_SOCKET"]
FILTER = os.environ.get("BLOOMREDIS_TEST_FILTER", SOCKET)
VISIBILITY = 2
app = Celery(
    "tests",
    broker=f"redis+socket://{SOCKET}?virtual_host=1",
    backend=f"redis+socket://{SOCKET}?virtual_host=2",
)
app.conf.update(
    broker_transport_options={
        "visibility_timeout": VISIBILITY,
        "unacked_restore_interval": 0.5,
        "unacked_restore_throttle": 1,
    },
    broker_connection_retry_on_startup=True,
    worker_prefetch_multiplier=1,
    worker_send_task_events=False,
)
seen = BloomFilter.from_url(f"unix://{FILTER}", "tasks", capacity=10_000, error_rate=1e-6)
notes = redis.Redis(unix_socket_path=SOCKET, decode_responses=True)


@app.task(base=Once, seen=seen, unique_on=["item"], lease=3.0)
def work(item: str, seconds: float) -> str:
    """Take some time."""
    notes.rpush("notes", f"begin {item} {os.getpid()}")
    time.sleep(seconds)  # the work
    notes.rpush("notes", f"end {item} {os.getpid()}")
    return item


@app.task(base=Once, seen=seen, unique_on=["order"], lease=3.0)
def ship(order: str, carrier: str) -> str:
    """Note an order when it is shipped."""
    time.sleep(0.05)  # the work
    notes.rpush("shipped", order)
    return f"{order} by {carrier}"


@app.task(base=Once, seen=seen, bind=True)
def second_time(self: Once, item: str) -> int:
    """Fail once, and ask for a retry."""
    if not self.request.retries:
        raise self.retry(countdown=0)
    return int(self.request.retries)


@app.task(base=Once, seen=seen)
def part(item: str) -> str:
    """Return an item, as a part of a chord or of a chain."""
    notes.hincrby("parts", item, 1)
    return item


@app.task(base=Once, seen=seen, unique_on=["item"], on_done=lambda item, seconds: f"{item} was there")
def looked_up(item: str, seconds: float) -> str:
    """Return a result that differs from the result of a repeat."""
    return f"{item} after {seconds}"


@app.task(bind=True, acks_late=True, reject_on_worker_lost=True)
def calls_another(self: Any, item: str) -> str:
    """Call a task that runs once, in the body of another."""
    return f"called {work(item, 0)}"


@app.task(base=Once, seen=seen, bind=True)
def replaced(self: Any, item: str) -> Any:
    """Let another task do the work."""
    notes.rpush("replaced", item)
    return self.replace(part.si(f"{item} by another"))


@app.task
def total(results: list[Any]) -> list[str]:
    """Return the results of a chord as text."""
    return [str(result) for result in results]


@app.task
def following() -> str:
    """Follow another task."""
    return "followed"


@app.task(base=Once, seen=seen, lease=10.0)
def member(order: str) -> None:
    """Ship an order, as a member of a chord or a chain."""
    notes.rpush("ended", order)


@app.task
def followed(*_: Any) -> None:
    """Follow a chord or a chain."""
    notes.rpush("ended", "followed")
