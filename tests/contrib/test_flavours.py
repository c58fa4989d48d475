"""Adapters refuse a filter of the wrong module when they are made, not at their first item."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from typing import Any, Final
from unittest.mock import AsyncMock, MagicMock

import pytest

import bloomredis
import bloomredis.asyncio
from bloomredis.contrib import (
    cache_guard,
    columns,
    datatrove,
    django,
    dramatiq,
    fastapi,
    faststream,
    idempotency,
    kafka,
    prometheus,
)
from tests.support.values import for_each

SIZE: Final[dict[str, Any]] = {"capacity": 1000, "error_rate": 1e-6}
FILTERS: Final[dict[str, Any]] = {
    half.__name__: half.BloomFilter.from_url("memory://", "keys", **SIZE)
    for half in (bloomredis, bloomredis.asyncio)
}


def work(*_: Any) -> Any:
    """Be an application, an endpoint, a view or a look-up."""


async def work_asyncio(*_: Any) -> Any:
    """Be the same as a coroutine function."""


ADAPTERS: Final[dict[str, tuple[str, Callable[[Any], Any]]]] = {
    "ASGIMiddleware": ("bloomredis.asyncio", lambda seen: idempotency.ASGIMiddleware(work_asyncio, seen)),
    "WSGIMiddleware": ("bloomredis", lambda seen: idempotency.WSGIMiddleware(work, seen)),
    "once() of FastAPI": ("bloomredis.asyncio", lambda seen: fastapi.once(seen, header="X-Id")),
    "once() of views": ("bloomredis", lambda seen: django.once(seen)(work)),
    "once() of asynchronous views": ("bloomredis.asyncio", lambda seen: django.once(seen)(work_asyncio)),
    "guard() of functions": ("bloomredis", lambda seen: cache_guard.guard(seen)(work)),
    "guard() of coroutine functions": (
        "bloomredis.asyncio",
        lambda seen: cache_guard.guard(seen)(work_asyncio),
    ),
    "Gauges": ("bloomredis", lambda seen: prometheus.Gauges([seen])),
    "load()": ("bloomredis", lambda seen: cache_guard.load(seen, [])),
    "Once of Dramatiq": ("bloomredis", dramatiq.Once),
    "Once of FastStream": ("bloomredis.asyncio", lambda seen: faststream.Once(seen, key=work)),
    "Batches": ("bloomredis", lambda seen: kafka.Batches(None, seen)),
    "AsyncBatches": ("bloomredis.asyncio", lambda seen: kafka.AsyncBatches(None, seen)),
    "SeenFilter": ("bloomredis", lambda seen: datatrove.SeenFilter(seen, job="november")),
    "NewRows": ("bloomredis", lambda seen: columns.NewRows(seen, "url")),
    "KeptRows": ("bloomredis", lambda seen: columns.KeptRows(seen, "url", job="november")),
    "AbsentRows": ("bloomredis", lambda seen: columns.AbsentRows(seen, "url")),
    "foreach_batch()": ("bloomredis", lambda seen: columns.foreach_batch(seen, "url", work)),
    "register()": ("bloomredis", lambda seen: columns.register(MagicMock(), seen)),
    "load_asyncio()": ("bloomredis.asyncio", lambda seen: asyncio.run(cache_guard.load_asyncio(seen, []))),
}
"""The module of the filter that each adapter needs, and a function that makes the adapter."""


@for_each("adapter", ADAPTERS)
def test_a_filter_of_the_wrong_module_is_refused(adapter: str) -> None:
    """The error names the adapter, the filter given and the filter wanted."""
    wanted, make = ADAPTERS[adapter]
    (other,) = FILTERS.keys() - {wanted}
    text = f"{adapter} needs a {wanted}.BloomFilter, not a {other}.BloomFilter"
    with pytest.raises(TypeError, match=f"^{re.escape(text)}$"):
        make(FILTERS[other])


@for_each("adapter", ADAPTERS)
def test_what_is_no_filter_is_refused(adapter: str) -> None:
    """For example a URL, a class, or a client."""
    wanted, make = ADAPTERS[adapter]
    for given, shown in (
        ("redis://localhost", "str"),
        (None, "NoneType"),
        (object(), "object"),
        (bloomredis.BloomFilter, "the class BloomFilter"),
    ):
        with pytest.raises(TypeError, match=f"^{re.escape(adapter)} needs a filter.* {wanted}.*not {shown}"):
            make(given)


@for_each("adapter", ADAPTERS)
def test_a_filter_of_the_right_module_is_accepted(adapter: str) -> None:
    """A mock is one too."""
    wanted, make = ADAPTERS[adapter]
    make(FILTERS[wanted])
    make(AsyncMock() if wanted.endswith("asyncio") else MagicMock())
