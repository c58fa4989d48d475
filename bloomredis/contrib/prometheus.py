"""Prometheus: a hook that counts the calls of this process, and gauges of filters."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from operator import attrgetter
from typing import Any, Final

from bloomredis import BloomError, CallEvent, FilterInfo, FilterLostError
from bloomredis.contrib import needs
from bloomredis.contrib._events import claims_lost, filters_lost
from bloomredis.contrib._flavours import reopened, require_sync
from bloomredis.contrib._outages import Warnings

with needs("prometheus", "prometheus_client"):
    import prometheus_client as client
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, InfoMetricFamily

__all__ = ["Gauges", "Metrics"]

SECONDS: Final = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5)
"""Upper bounds of the buckets for the time of a call."""
ITEMS: Final = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10_000, 100_000)
"""Upper bounds of the buckets for the items of a call."""
GAUGES: Final = {
    "count": "Items that were new",
    "capacity": "Items that the filter is sized for",
    "fill_ratio": "Share of the bits that are set",
    "estimated_error_rate": "False-positive rate to expect now",
    "size_bytes": "Bytes that the filter takes",
    "ttl_seconds": "Seconds until the filter expires; none if it does not expire",
    "layers": "Layers of the filter",
}
COUNTERS: Final[tuple[tuple[str, str, Callable[[CallEvent], int]], ...]] = (
    ("round_trips", "Round trips to the server", attrgetter("round_trips")),
    ("resends", "Round trips after a lost reply", attrgetter("resends")),
    ("receipts_used", "Answers of earlier calls that were fetched", attrgetter("receipts")),
    ("lost", "Calls that found the filter lost", filters_lost),
    ("claims_lost", "Claims that were lost before their commit", claims_lost),
    ("cache_answers", "Items that the local cache answered", attrgetter("cached")),
)
"""Counters of each filter: name, description, and the number in an event."""


class Metrics:
    """A hook that counts calls: `bloomredis.instrument(Metrics())`.

    The labels are names of filters, verbs, outcomes and answers, never an item.  A call takes a few
    microseconds more, and no round trip.

    :param registry: the registry of the metrics; None means the registry of the process.
    :raises ValueError: the registry has these metrics already.
    """

    def __init__(self, registry: Any = None) -> None:
        self._registry = client.REGISTRY if registry is None else registry
        self._items = self._counter("items", "Items of calls, by answer", "verb", "answer")
        self._calls = self._counter("calls", "Calls", "verb", "outcome")
        self._seconds = self._histogram("call_seconds", "Time of calls", SECONDS, "verb", "outcome")
        self._batches = self._histogram("batch_items", "Items of a call", ITEMS, "verb")
        self._counters = [(self._counter(name, text), of_event) for name, text, of_event in COUNTERS]
        self._false_positives = self._counter("false_positives", "False positives that the program has found")
        self._of = cache(self._made)
        self._of_filter = cache(self._made_of_filter)

    def _counter(self, name: str, text: str, *labels: str) -> Any:
        return client.Counter(f"bloomredis_{name}", text, ("filter", *labels), registry=self._registry)

    def _histogram(self, name: str, text: str, buckets: Any, *labels: str) -> Any:
        names = ("filter", *labels)
        return client.Histogram(f"bloomredis_{name}", text, names, buckets=buckets, registry=self._registry)

    def _made(self, name: str, verb: str, outcome: str) -> tuple[Any, Any, Any]:
        of_call = name, verb, outcome
        return self._calls.labels(*of_call), self._seconds.labels(*of_call), self._batches.labels(name, verb)

    def _made_of_filter(self, name: str) -> tuple[list[tuple[Any, Callable[[CallEvent], int]]], Any]:
        """Return the counters of a filter; they begin at 0, so that Prometheus sees the first loss."""
        counters = [(counter.labels(name), of_event) for counter, of_event in self._counters]
        return counters, self._false_positives.labels(name)

    def __call__(self, event: CallEvent) -> None:
        """Count a call."""
        calls, seconds, batches = self._of(event.filter, event.verb, event.outcome)
        calls.inc()
        seconds.observe(event.seconds)
        if event.items:
            batches.observe(event.items)
        for counter, of_event in self._of_filter(event.filter)[0]:
            counter.inc(of_event(event))
        if event.outcome == "ok":
            verb = event.verb.removesuffix("_many")
            for answer, number in answers(event):
                self._items.labels(event.filter, verb, answer).inc(number)

    def false_positive(self, name: str, number: int = 1) -> None:
        """Count items that the filter answered "seen" for and that were new, as a database has shown.

        Only the program can detect them.  Their share is the true error rate.
        """
        self._of_filter(name)[1].inc(number)


def answers(event: CallEvent) -> Iterator[tuple[str, int]]:
    """Yield each answer of a call, and the number of items that got it.

    The answers are `new` and `seen`; `busy` for items that another worker holds; and `done` for claims on
    done items, and for the items of a call that has no answer for each, such as a commit.
    """
    if event.new is None:
        yield "done", event.items - event.lost
        return
    yield "new", event.new
    is_claim = event.verb in ("claim", "claim_many")
    yield ("done" if is_claim else "seen"), event.items - event.new - event.busy
    if is_claim:
        yield "busy", event.busy


class Gauges:
    """A collector of the sizes and fill ratios of filters.

    `registry.register(Gauges([seen], every=30))`.  Reading them makes the server count bits, a millisecond
    for a megabyte, so let one process do it: `bloomredis export`.

    While a filter does not answer, its last gauges are repeated, `bloomredis_up` is 0, and a warning is
    logged at most once a minute.  If a filter is lost or cleared, that is counted in
    `bloomredis_losses_total`, and the filter is opened again once somebody has created it.  The collector
    uses an object of its own for that, so your object still raises `FilterLostError`.

    :param filters: filters of `bloomredis`.
    :param every: the least number of seconds between two reads.
    :raises TypeError: a filter is of `bloomredis.asyncio`, or is none.
    """

    def __init__(self, filters: Iterable[Any], *, every: float = 30.0) -> None:
        self._filters = list(filters)
        for each in self._filters:
            require_sync(each, "Gauges")
        self._losses = {each.name: 0 for each in self._filters}
        self._warnings = {each.name: Warnings() for each in self._filters}
        self._every = every
        self._found: dict[str, FilterInfo] = {}
        self._up: dict[str, bool] = {}
        self._not_before = 0.0
        self._lock = threading.Lock()

    def describe(self) -> Iterator[Any]:
        """Return no metrics, so that registering costs no round trip."""
        return iter(())

    def collect(self) -> Iterator[Any]:
        """Yield the metrics."""
        with self._lock:
            if time.monotonic() >= self._not_before:
                self._ask()
                self._not_before = time.monotonic() + self._every
            found, up, losses = dict(self._found), dict(self._up), dict(self._losses)
        for gauge, text in GAUGES.items():
            yield _family(gauge, text, {name: measured(info)[gauge] for name, info in found.items()})
        yield _family("up", "1 if the filter answered the last read, else 0", up)
        yield _family("losses", "Times that the filter was lost or cleared", losses, CounterMetricFamily)
        layouts = {
            name: {"layout": info.layout, "generation": info.generation} for name, info in found.items()
        }
        yield _family("filter", "Layout and generation", layouts, InfoMetricFamily)

    def text(self) -> bytes:
        """Return the metrics in the text format of a scrape."""
        text: bytes = client.generate_latest(self._alone())
        return text

    def serve(self, host: str, port: int) -> str:
        """Serve the metrics from a thread, and return their address; port 0 means any free port."""
        server, _ = client.start_http_server(port, host, self._alone())
        return f"http://{host}:{server.server_port}/metrics"

    def _alone(self) -> Any:
        registry = client.CollectorRegistry()
        registry.register(self)
        return registry

    def _ask(self) -> None:
        for number, each in enumerate(self._filters):
            self._up[each.name] = False
            try:
                try:
                    self._found[each.name] = each.info()
                except FilterLostError:
                    self._losses[each.name] += 1
                    self._filters[number] = again = reopened(each)
                    self._found[each.name] = again.info()
                self._up[each.name] = True
            except BloomError as error:
                self._warnings[each.name].warn("the gauges of %r are old: %s", each.name, error)


def measured(info: FilterInfo) -> dict[str, float | None]:
    """Return the gauges of a filter."""
    own = {"ttl_seconds": info.ttl, "layers": len(info.layers) or 1}
    return {name: own[name] if name in own else getattr(info, name) for name in GAUGES}


def _family(name: str, text: str, values: dict[str, Any], kind: Any = GaugeMetricFamily) -> Any:
    family = kind(f"bloomredis_{name}", text, labels=["filter"])
    for each, value in values.items():
        if value is not None:
            family.add_metric([each], value)
    return family
