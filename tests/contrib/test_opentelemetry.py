"""Spans and metrics, with the SDK of OpenTelemetry."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
import redis
import redis.asyncio
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

import bloomredis.asyncio
from bloomredis import BloomFilter, ClaimLostError
from bloomredis.contrib.opentelemetry import Telemetry
from tests.contrib import pages
from tests.support.servers import Server

SIZE: dict[str, Any] = {"capacity": 1000, "error_rate": 1e-6}


@pytest.fixture
def spans() -> InMemorySpanExporter:
    return InMemorySpanExporter()


@pytest.fixture
def metrics() -> InMemoryMetricReader:
    return InMemoryMetricReader()


@pytest.fixture
def tracers(spans: InMemorySpanExporter) -> TracerProvider:
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(spans))
    return provider


@pytest.fixture
def seen(any_client: redis.Redis, tracers: Any, metrics: Any, set_hook: Any) -> BloomFilter:
    """A filter whose calls are reported."""
    set_hook(Telemetry(tracer_provider=tracers, meter_provider=MeterProvider([metrics])))
    return BloomFilter(any_client, "seen", **SIZE)


def test_a_call_is_a_span_below_the_current_one(seen: BloomFilter, tracers: Any, spans: Any) -> None:
    """The span has the numbers and the duration of the call."""
    with tracers.get_tracer("program").start_as_current_span("page") as page:
        seen.add_many(["a", "b", "a"])
    call, _ = spans.get_finished_spans()
    assert (call.name, call.parent.span_id) == ("bloomredis.add_many seen", page.get_span_context().span_id)
    assert page.start_time <= call.start_time < call.end_time <= page.end_time
    assert call.attributes["db.system.name"] == "redis"
    assert call.attributes["db.operation.name"] == "bloomredis.add_many"
    assert (call.attributes["db.operation.batch.size"], call.attributes["bloomredis.new"]) == (3, 2)


@pytest.mark.parametrize("is_asyncio", [False, True])
def test_spans_of_the_client_are_children(
    any_server: Server,
    tracers: TracerProvider,
    spans: InMemorySpanExporter,
    set_hook: Any,
    *,
    is_asyncio: bool,
) -> None:
    """The span of a command, made by the client's instrumentation, is a child of the call's span."""
    tracer = tracers.get_tracer("client")
    set_hook(Telemetry(tracer_provider=tracers))

    class Client(redis.Redis):
        def execute_command(self, *args: Any, **options: Any) -> Any:
            with tracer.start_as_current_span(args[0]):
                return super().execute_command(*args, **options)  # type: ignore[no-untyped-call]

    class AsyncClient(redis.asyncio.Redis):
        async def execute_command(self, *args: Any, **options: Any) -> Any:
            with tracer.start_as_current_span(args[0]):
                return await super().execute_command(*args, **options)  # type: ignore[no-untyped-call]

    async def main() -> None:
        async with AsyncClient(unix_socket_path=any_server.socket) as client:
            await bloomredis.asyncio.BloomFilter(client, "seen", **SIZE).contains("a")

    if is_asyncio:
        asyncio.run(main())
    else:
        BloomFilter(Client(unix_socket_path=any_server.socket), "seen", **SIZE).contains("a")
    *commands, call = spans.get_finished_spans()
    assert call.name == "bloomredis.contains seen"
    assert commands
    assert {each.parent and each.parent.span_id for each in commands} == {call.context.span_id}


def test_an_error_is_the_status_of_its_span(seen: BloomFilter, any_client: Any, spans: Any) -> None:
    """The span has the outcome as its error type."""
    claim = seen.claim("a")
    any_client.delete(*any_client.keys("{seen}:claim:*"))
    with pytest.raises(ClaimLostError):
        claim.commit()
    _, commit = spans.get_finished_spans()
    assert not commit.status.is_ok
    assert commit.attributes["error.type"] == "lost"
    assert not commit.events  # the text of an exception may contain items


def test_no_item_is_in_a_span(seen: BloomFilter, spans: Any) -> None:
    """Neither in its name nor in an attribute."""
    seen.add("secret")
    seen.claim_many(["secret", "too"])
    assert "secret" not in "".join(span.to_json() for span in spans.get_finished_spans())


def test_calls_are_counted(seen: BloomFilter, metrics: InMemoryMetricReader) -> None:
    """The metrics have items, new and busy items, round trips, and the duration."""
    seen.add_many(["a", "b", "a"])
    seen.claim("c")
    seen.claim("c")
    sums = {metric.name: sum(map(_number, metric.data.data_points)) for metric in _metrics(metrics)}
    assert sums["bloomredis.items"] == 5
    assert sums["bloomredis.items.new"] == 3
    assert sums["bloomredis.items.busy"] == 1
    assert sums["bloomredis.round_trips"] >= 3
    assert sums["bloomredis.call.duration"] == 3


def _metrics(reader: InMemoryMetricReader) -> Any:
    data: Any = reader.get_metrics_data()
    return data.resource_metrics[0].scope_metrics[0].metrics


def _number(point: Any) -> Any:
    return point.count if hasattr(point, "count") else point.value


def test_the_page_runs(any_server: Server) -> None:
    """Each example of the page runs."""
    pages.run("opentelemetry", any_server)
