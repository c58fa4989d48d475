"""Spans and metrics for OpenTelemetry: a hook for the calls of this process."""

from __future__ import annotations

import time
from typing import Any

from bloomredis import CallEvent
from bloomredis.contrib import missing

try:
    from opentelemetry import metrics, trace
except ImportError as error:
    raise missing("opentelemetry", "opentelemetry-api") from error


class Telemetry:
    """A hook that reports calls: `bloomredis.instrument(Telemetry())`, or `observe=` of a filter.

    Each call is a span of its own below the current one, `bloomredis.add_many seen`, and is counted.  The
    attributes are names, numbers and the outcome; never an item.

    :param tracer_provider: None for that of the process.
    :param meter_provider: likewise.
    """

    def __init__(self, *, tracer_provider: Any = None, meter_provider: Any = None) -> None:
        meter = metrics.get_meter("bloomredis", meter_provider=meter_provider)
        self._tracer = trace.get_tracer("bloomredis", tracer_provider=tracer_provider)
        self._seconds = meter.create_histogram("bloomredis.call.duration", "s", "Time of calls")
        self._items = meter.create_counter("bloomredis.items", "{item}", "Items of calls")
        self._new = meter.create_counter("bloomredis.items.new", "{item}", "Items that were new or claimed")
        self._busy = meter.create_counter("bloomredis.items.busy", "{item}", "Items that another worker held")
        self._cached = meter.create_counter(
            "bloomredis.items.cached", "{item}", "Items that the local cache answered"
        )
        self._round_trips = meter.create_counter("bloomredis.round_trips", "{call}", "Calls of the server")
        self._resends = meter.create_counter("bloomredis.resends", "{call}", "Those after a lost reply")
        self._receipts = meter.create_counter(
            "bloomredis.receipts.used", "{call}", "Answers of earlier calls that were asked for"
        )
        self._claims_lost = meter.create_counter("bloomredis.claims.lost", "{claim}", "Claims that were lost")

    def __call__(self, event: CallEvent) -> None:
        """Report a call."""
        self._trace(event)
        of_filter = {"db.collection.name": event.filter}
        of_call = of_filter | {"db.operation.name": f"bloomredis.{event.verb}", "outcome": event.outcome}
        self._seconds.record(event.seconds, of_call)
        self._items.add(event.items, of_call)
        for counter, number in (
            (self._new, event.new),
            (self._busy, event.busy),
            (self._cached, event.cached),
            (self._round_trips, event.round_trips),
            (self._resends, event.resends),
            (self._receipts, event.receipts),
            (self._claims_lost, _claims_lost(event)),
        ):
            if number:
                counter.add(number, of_filter)

    def _trace(self, event: CallEvent) -> None:
        """Make a span of the call, which has ended."""
        end = time.time_ns()
        span = self._tracer.start_span(
            f"bloomredis.{event.verb} {event.filter}",
            kind=trace.SpanKind.CLIENT,
            attributes=attributes(event),
            start_time=end - round(event.seconds * 1e9),
        )
        if event.outcome != "ok":
            span.set_status(trace.StatusCode.ERROR, event.outcome)
        span.end(end)


def attributes(event: CallEvent) -> dict[str, str | int]:
    """Return the attributes of a call's span."""
    found: dict[str, str | int] = {
        "db.system.name": "redis",
        "db.collection.name": event.filter,
        "db.operation.name": f"bloomredis.{event.verb}",
        "bloomredis.kind": event.kind,
        "bloomredis.outcome": event.outcome,
        "bloomredis.round_trips": event.round_trips,
        "bloomredis.resends": event.resends,
    }
    if event.verb.endswith("_many"):
        found["db.operation.batch.size"] = event.items
    if event.new is not None:
        found["bloomredis.new"] = event.new
    if event.outcome != "ok":
        found["error.type"] = event.outcome
    return found


def _claims_lost(event: CallEvent) -> int:
    return event.lost + (event.outcome == "lost" and event.verb in ("commit", "release", "extend"))
