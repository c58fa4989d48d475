"""A Celery application of one task, which notes in a list when its body begins and ends."""

from __future__ import annotations

import os
import time

import redis
from celery import Celery

from bloomredis import BloomFilter
from bloomredis.contrib.celery import Once

SOCKET = os.environ["BLOOMREDIS_TEST_SOCKET"]
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
    task_acks_late=True,
    worker_prefetch_multiplier=1,
    worker_send_task_events=False,
)
seen = BloomFilter.from_url(f"unix://{SOCKET}", "tasks", capacity=10_000, error_rate=1e-6)
notes = redis.Redis(unix_socket_path=SOCKET, decode_responses=True)


@app.task(base=Once, seen=seen, unique_on=["item"], lease=1.0)
def work(item: str, seconds: float) -> str:
    """Take some time."""
    notes.rpush("notes", f"begin {item} {os.getpid()} {time.time()}")
    time.sleep(seconds)  # the work
    notes.rpush("notes", f"end {item} {os.getpid()} {time.time()}")
    return item


@app.task(base=Once, seen=seen, bind=True, lease=1.0)
def second_time(self: Once, item: str) -> int:
    """Fail once, and ask for a retry."""
    if not self.request.retries:
        raise self.retry(countdown=0)
    return int(self.request.retries)
