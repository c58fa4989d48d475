"""A worker process of Dramatiq, which notes the beginning and the end of each run of its actor."""

from __future__ import annotations

import sys
import time
from typing import Any

import dramatiq
import redis
from dramatiq.brokers.redis import RedisBroker

from bloomredis import BloomFilter
from bloomredis.contrib.dramatiq import Once


def broker_at(socket: str, filters: str) -> tuple[Any, Any, Any]:
    """Return a broker on one server, its actor, and a client of that server; the filter is on another."""
    client = redis.Redis(unix_socket_path=socket)
    broker = RedisBroker(
        connection_pool=client.connection_pool, heartbeat_timeout=1000, maintenance_chance=1_000_000
    )
    seen = BloomFilter.from_url(f"unix://{filters}", "orders", capacity=1000, error_rate=1e-6)
    broker.add_middleware(Once(seen, lease=3))

    def ship(order: str) -> None:
        client.rpush("begun", order)
        time.sleep(0.1)  # the work
        client.rpush("ended", order)

    return broker, dramatiq.actor(ship, broker=broker, once=True, min_backoff=100, max_backoff=500), client


if __name__ == "__main__":
    dramatiq.Worker(broker_at(*sys.argv[1:])[0], worker_threads=4, worker_timeout=100).start()
    while True:
        time.sleep(60)
