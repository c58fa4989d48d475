"""A FastAPI application in a process of its own, which notes each payment and each event."""

from __future__ import annotations

import asyncio
import os

import redis.asyncio
from fastapi import FastAPI

from bloomredis.asyncio import BloomFilter
from bloomredis.contrib.fastapi import once
from bloomredis.contrib.idempotency import ASGIMiddleware

_notes = redis.asyncio.Redis(unix_socket_path=os.environ["BLOOMREDIS_TEST_SOCKET"])
_keys, _events = (
    BloomFilter.from_url(os.environ["BLOOMREDIS_TEST_FILTER"], name, capacity=10_000, error_rate=1e-9)
    for name in ("keys", "events")
)
app = FastAPI()
app.add_middleware(ASGIMiddleware, seen=_keys, lease=3)


@app.post("/payments/{number}")
async def pay(number: str) -> None:
    """Note a payment."""
    await _work(f"payment {number}")


@app.post("/events/{number}", dependencies=[once(_events, header="X-Id", lease=3)])
async def receive(number: str) -> None:
    """Note an event."""
    await _work(f"event {number}")


async def _work(what: str) -> None:
    await asyncio.sleep(0.1)
    await _notes.rpush("done", what)
