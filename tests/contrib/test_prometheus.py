"""The metrics of a scrape, and gauges of filters."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from typing import Any
from urllib.request import urlopen

import prometheus_client
import pytest
import redis
from prometheus_client.parser import text_string_to_metric_families

from bloomredis import BloomFilter, FilterLostError, ScalingBloomFilter
from bloomredis.contrib.prometheus import GAUGES, Gauges, Metrics
from tests.contrib import pages
from tests.support.commands import COMMAND, ENVIRONMENT, printed, run_command
from tests.support.readme import ROOT
from tests.support.servers import Server

SIZE: dict[str, Any] = {"capacity": 1000, "error_rate": 1e-6}
WORKER = """
import sys
import bloomredis, prometheus_client
from bloomredis.contrib.prometheus import Metrics
bloomredis.instrument(Metrics())
server, _ = prometheus_client.start_http_server(0)
seen = bloomredis.BloomFilter.from_url(sys.argv[1], "seen", capacity=1000, error_rate=1e-6)
seen.add_many(["a", "b", "a"])
seen.contains("x")
print(server.server_port, flush=True)
sys.stdin.read()
"""


@pytest.fixture
def registry() -> prometheus_client.CollectorRegistry:
    return prometheus_client.CollectorRegistry()


@pytest.fixture
def seen(any_client: redis.Redis, registry: Any, set_hook: Any) -> BloomFilter:
    """A filter with metrics in the registry."""
    set_hook(Metrics(registry))
    return BloomFilter(any_client, "seen", **SIZE)


@pytest.fixture
def worker(any_server: Server) -> Iterator[str]:
    """The address of a worker's metrics."""
    command = [sys.executable, "-c", WORKER, any_server.url]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, cwd=ROOT, stdin=pipe, stdout=pipe, text=True) as process:
        assert process.stdout is not None
        yield f"http://127.0.0.1:{int(process.stdout.readline())}/metrics"
        process.kill()


def scraped(address: str) -> str:
    with urlopen(address, timeout=30) as reply:  # noqa: S310 - a server of the test's own
        text: str = reply.read().decode()
        return text


def names(text: str) -> set[str]:
    """Return the names of metrics that have a sample, without the suffixes of histograms."""
    families = list(text_string_to_metric_families(text))
    return {
        re.sub("_(total|bucket|sum|count|created)$", "", family.name) for family in families if family.samples
    }


def listed() -> set[str]:
    """Return the metrics in the table of the page, without the suffix of counters."""
    page = (ROOT / "docs" / "prometheus.md").read_text()
    rows = "".join(line.partition(" | ")[0] for line in page.splitlines() if line.startswith("| `bloom"))
    return {name.removesuffix("_total") for name in re.findall(r"`(bloomredis_\w+)`", rows)}


def test_a_scrape_of_a_worker_shows_every_metric(worker: str) -> None:
    """Each metric in the table of the page has a sample; before the first loss it is 0."""
    shown = {name for name in names(scraped(worker)) if name.startswith("bloomredis_")}
    assert len(listed()) == 11
    assert shown == listed()


@pytest.mark.parametrize(
    ("verb", "answer", "number"),
    [
        *(("add", "new", 3), ("add", "seen", 2), ("contains", "new", 1), ("contains", "seen", 1)),
        *(("claim", "new", 2), ("claim", "busy", 1), ("claim", "done", 1), ("commit", "done", 3)),
    ],
)
def test_items_are_counted_by_their_answer(
    seen: BloomFilter, registry: Any, verb: str, answer: str, number: int
) -> None:
    """Calls of one item and batches count together."""
    seen.add("a")
    seen.add_many(["a", "b", "c", "c"])
    seen.contains_many(["a", "x"])
    claims = seen.claim_many(["a", "y", "z"])
    seen.claim("y")
    seen.commit_many(claims)
    labels = {"filter": "seen", "verb": verb, "answer": answer}
    assert registry.get_sample_value("bloomredis_items_total", labels) == number


def test_losses_are_counted(any_client: redis.Redis, seen: BloomFilter, registry: Any) -> None:
    """Losses of filters and of claims have separate counters."""
    claims = seen.claim_many(["a", "b"])
    any_client.delete(*any_client.keys("{seen}:claim:*"))
    seen.commit_many(claims)
    any_client.flushall()
    with pytest.raises(FilterLostError):
        seen.add("c")
    losses = [
        registry.get_sample_value(f"bloomredis_{name}_total", {"filter": "seen"})
        for name in ("claims_lost", "lost")
    ]
    assert losses == [2, 1]


def test_what_the_local_cache_answers_is_counted(
    any_client: redis.Redis, registry: Any, set_hook: Any
) -> None:
    """An answer of the cache counts no round trip."""
    options: dict[str, Any] = SIZE | {"local_cache": 100}
    set_hook(Metrics(registry))
    f = BloomFilter(any_client, "seen", **options)
    f.add("a")
    before = registry.get_sample_value("bloomredis_round_trips_total", {"filter": "seen"})
    f.add("a")
    assert registry.get_sample_value("bloomredis_cache_answers_total", {"filter": "seen"}) == 1
    assert registry.get_sample_value("bloomredis_round_trips_total", {"filter": "seen"}) == before


def test_gauges_are_those_of_info(any_client: redis.Redis, registry: Any) -> None:
    """For a filter in layers, which does not expire."""
    f = ScalingBloomFilter(any_client, "grown", capacity=100, error_rate=0.01)
    f.add_many([str(i) for i in range(250)])
    registry.register(Gauges([f]))
    info = f.info()
    values = {name: registry.get_sample_value(f"bloomredis_{name}", {"filter": "grown"}) for name in GAUGES}
    assert (values["count"], values["layers"]) == (info.count, len(info.layers))
    assert values["fill_ratio"] == info.fill_ratio
    assert values["ttl_seconds"] is None


def test_a_filter_that_is_gone_keeps_its_gauges(any_client: redis.Redis, registry: Any) -> None:
    """Meanwhile `bloomredis_up` is 0."""
    f = BloomFilter(any_client, "seen", **SIZE)
    f.add("a")
    registry.register(Gauges([f], every=0))
    assert registry.get_sample_value("bloomredis_up", {"filter": "seen"}) == 1
    any_client.flushall()
    assert registry.get_sample_value("bloomredis_up", {"filter": "seen"}) == 0
    assert registry.get_sample_value("bloomredis_count", {"filter": "seen"}) == 1


@pytest.mark.parametrize("url", [True, False], ids=["url", "client"])
def test_a_filter_that_is_made_again_has_gauges_again(
    any_server: Server, registry: Any, caplog: pytest.LogCaptureFixture, *, url: bool
) -> None:
    """After a loss and after a clear() by others; each is counted, and the program's object still raises."""
    client = any_server.client()
    f = BloomFilter.from_url(any_server.url, "seen", **SIZE) if url else BloomFilter(client, "seen", **SIZE)
    f.add("a")
    registry.register(Gauges([f], every=0))
    assert sampled(registry) == (1, 1, 0)
    client.flushall()
    assert [sampled(registry) for _ in range(3)] == [(0, 1, 1)] * 3
    assert client.exists("seen") == 0
    with pytest.raises(FilterLostError):
        f.add("b")
    other = BloomFilter(client, "seen", **SIZE)
    other.add_many(["b", "c", "d"])
    assert sampled(registry) == (1, 3, 1)
    other.clear()
    other.add("e")
    assert sampled(registry) == (1, 1, 2)
    assert caplog.text.count("are old") == 1


def sampled(registry: prometheus_client.CollectorRegistry) -> tuple[float | None, ...]:
    """Return, from one scrape, whether the filter is up, its count, and its losses."""
    families = {each.name: each for each in registry.collect()}
    names = ("bloomredis_up", "bloomredis_count", "bloomredis_losses")
    return tuple(families[name].samples[0].value for name in names)


def test_gauges_are_asked_for_at_most_so_often(any_client: redis.Redis, registry: Any) -> None:
    """A second scrape within that time shows the same."""
    f = BloomFilter(any_client, "seen", **SIZE)
    f.add("a")
    registry.register(Gauges([f], every=3600))
    prometheus_client.generate_latest(registry)
    f.add("b")
    assert registry.get_sample_value("bloomredis_count", {"filter": "seen"}) == 1


def test_export_prints_gauges(any_server: Server) -> None:
    """In the format that Prometheus reads."""
    with any_server.client() as client:
        BloomFilter(client, "seen", **SIZE).add("a")
    text = printed("export", "seen", "--url", any_server.url).decode()
    assert {f"bloomredis_{name}" for name in GAUGES} - {"bloomredis_ttl_seconds"} <= names_of_gauges(text)


def names_of_gauges(text: str) -> set[str]:
    return {family.name for family in text_string_to_metric_families(text) if family.samples}


def test_export_listens(any_server: Server) -> None:
    """It prints its port, and serves until it is stopped."""
    with any_server.client() as client:
        BloomFilter(client, "seen", **SIZE).add("a")
    command = [*COMMAND, "export", "seen", "--url", any_server.url, "--listen", "127.0.0.1:0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=ENVIRONMENT) as process:
        assert process.stdout is not None
        assert 'bloomredis_count{filter="seen"} 1.0' in scraped(process.stdout.readline().strip())
        process.terminate()
        assert process.wait(30) == 128 + 15


def test_export_refuses_what_is_no_address() -> None:
    """The error is one line."""
    done = run_command("export", "seen", "--url", "memory://", "--listen", "nonsense")
    assert (done.returncode, done.stderr.count(b"\n")) == (2, 1)


def test_the_dashboard_asks_for_metrics_that_are_there() -> None:
    """The dashboard uses every metric of the page, and no other."""
    panels = json.loads((ROOT / "docs" / "grafana.json").read_text())["panels"]
    asked = " ".join(target["expr"] for panel in panels for target in panel["targets"])
    found = {re.sub("_(total|bucket)$", "", name) for name in re.findall(r"bloomredis_\w+", asked)}
    assert listed() - found == set()
    assert found - listed() - {f"bloomredis_{name}" for name in (*GAUGES, "up", "losses")} == set()


def test_the_page_runs(any_server: Server) -> None:
    """Each example of the page runs."""
    pages.run("prometheus", any_server)
