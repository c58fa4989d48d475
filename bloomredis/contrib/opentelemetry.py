"""OpenTelemetry: a hook that reports the calls of this process as spans and metrics."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager
from operator import attrgetter
from typing import Any, Final

from bloomredis import CallEvent
from bloomredis.contrib import needs
from bloomredis.contrib._events import claims_lost

with needs("opentelemetry", "opentelemetry-api"):
    from opentelemetry import metrics, trace


__all__ = ["Telemetry"]


COUNTERS: Final[tuple[tuple[str, str, str, Callable[[CallEvent], int | None]], ...]] = (
    ("items.new", "{item}", "Items that were new or claimed", attrgetter("new")),
    ("items.busy", "{item}", "Items that another worker held", attrgetter("busy")),
    ("items.cached", "{item}", "Items that the local cache answered", attrgetter("cached")),
    ("round_trips", "{call}", "Round trips", attrgetter("round_trips")),
    ("resends", "{call}", "Round trips after a lost reply", attrgetter("resends")),
    ("receipts.used", "{call}", "Answers of earlier calls that were fetched", attrgetter("receipts")),
    ("claims.lost", "{claim}", "Claims that were lost", claims_lost),
)
"""Counters of each filter: name, unit, description, and the number in an event."""


class Telemetry:
    """A hook that reports calls: `bloomredis.instrument(Telemetry())`.

    Each call is counted, and is a child span of the current one, such as `bloomredis.add_many seen`.  During
    the call it is the current span, so that the client's spans are its children.  The attributes are names,
    numbers and the outcome, never an item.

    :param tracer_provider: None means the provider of the process.
    :param meter_provider: None means the provider of the process.
    """

    def __init__(self, *, tracer_provider: Any = None, meter_provider: Any = None) -> None:
        meter = metrics.get_meter("bloomredis", meter_provider=meter_provider)
        self._tracer = trace.get_tracer("bloomredis", tracer_provider=tracer_provider)
        self._seconds = meter.create_histogram("bloomredis.call.duration", "s", "Time of calls")
        self._items = meter.create_counter("bloomredis.items", "{item}", "Items of calls")
        self._counters = [
            (meter.create_counter(f"bloomredis.{name}", unit, text), of_event)
            for name, unit, text, of_event in COUNTERS
        ]

    @contextmanager
    def around(self, name: str, kind: str, verb: str) -> Generator[Callable[[CallEvent], None], None, None]:
        """Make a span for a call, and count the call when it ends."""
        with self._tracer.start_as_current_span(
            f"bloomredis.{verb} {name}", kind=trace.SpanKind.CLIENT, attributes=_before(name, kind, verb)
        ) as span:

            def report(event: CallEvent) -> None:
                span.set_attributes(attributes(event))
                if event.outcome != "ok":
                    span.set_status(trace.StatusCode.ERROR, event.outcome)
                self._count(event)

            yield report

    def _count(self, event: CallEvent) -> None:
        of_filter = {"db.collection.name": event.filter}
        of_call = of_filter | {"db.operation.name": f"bloomredis.{event.verb}", "outcome": event.outcome}
        self._seconds.record(event.seconds, of_call)
        self._items.add(event.items, of_call)
        for counter, of_event in self._counters:
            if number := of_event(event):
                counter.add(number, of_filter)


def _before(name: str, kind: str, verb: str) -> dict[str, str]:
    """Return the first attributes of a span, which a sampler can read."""
    return {
        "db.system.name": "redis",
        "db.collection.name": name,
        "db.operation.name": f"bloomredis.{verb}",
        "bloomredis.kind": kind,
    }


def attributes(event: CallEvent) -> dict[str, str | int]:
    """Return the attributes of a call's span."""
    found: dict[str, str | int] = {
        **_before(event.filter, event.kind, event.verb),
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
