"""Spiders in several processes, on a site of this one."""

from __future__ import annotations

import asyncio
import signal
import subprocess
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
import redis
from scrapy import Request
from scrapy.utils.test import get_crawler

from bloomredis.contrib.scrapy import BatchDedupe, ClaimWhileDownloading, DupeFilter
from tests.contrib import spider
from tests.contrib.site import Site, serving
from tests.support.readme import ROOT, on_page
from tests.support.servers import Server, running
from tests.support.waiting import wait_until

EXAMPLES = {
    name: block.text
    for block in on_page(ROOT / "docs" / "scrapy.md")
    for name in ("DupeFilter", "BatchDedupe", "ClaimWhileDownloading")
    if f"contrib.scrapy.{name}" in block.text
}
CONCURRENT = spider.FAST["CONCURRENT_REQUESTS"]


def settings(adapter: str, server: Server, **others: Any) -> dict[str, Any]:
    """Return the settings that the page on Scrapy gives for an adapter."""
    made: dict[str, Any] = {}
    exec(EXAMPLES[adapter].replace("redis://localhost", server.url), {}, made)  # noqa: S102 - the project's own page
    return made | {"BLOOMREDIS_CAPACITY": 10_000} | others


def crawler(adapter: str, server: Server, **others: Any) -> Any:
    """Return a crawler that does not crawl."""
    return get_crawler(spider.Links, settings_dict=settings(adapter, server, **others))


@pytest.fixture
def site() -> Iterator[Site]:
    """A site of 2,000 pages with 20 links each."""
    with serving(Site(2000, 20, spiders=3)) as made:
        yield made


def crawl(site: Site, number: int, chosen: dict[str, Any]) -> subprocess.Popen[str]:
    """Start the spider of that number."""
    return spider.start(**chosen, USER_AGENT=str(number), START_URL=f"{site.url}/{number}")


def test_no_page_is_lost_with_a_spider_that_is_killed(site: Site, any_server: Server) -> None:
    """The others fetch each page; twice only those that it was fetching."""
    chosen = settings("ClaimWhileDownloading", any_server, BLOOMREDIS_LEASE=4)
    spiders = [crawl(site, number, chosen) for number in range(3)]
    wait_until("a part of the site is fetched", lambda: len(site.fetches) > 600, every=0.001)
    spiders[0].send_signal(signal.SIGKILL)
    spiders[0].communicate(timeout=120)
    assert [spider.ended(each)["finish_reason"] for each in spiders[1:]] == ["finished"] * 2
    assert {page for page, _ in site.fetches} == set(site.links)
    counted = Counter(page for page, _ in site.fetches)
    twice = {page for page, count in counted.items() if count > 1}
    assert max(counted.values()) <= 2
    assert len(twice) <= CONCURRENT
    assert twice <= {page for page, by in site.fetches if by == "0"}


def test_a_page_is_fetched_by_one_spider(site: Site, any_server: Server) -> None:
    """With the dupefilter, of three that follow each link."""
    chosen = settings("DupeFilter", any_server)
    reasons = [
        spider.ended(each)["finish_reason"] for each in [crawl(site, number, chosen) for number in range(3)]
    ]
    assert reasons == ["finished"] * 3
    assert sorted(page for page, _ in site.fetches) == sorted(site.links)
    assert len({by for _, by in site.fetches}) == 3


@pytest.mark.parametrize("adapter", sorted(EXAMPLES))
def test_a_server_that_goes_is_the_reason_of_the_end(adapter: str, any_server: Server) -> None:
    """And not `finished`."""
    with serving(Site(2000, 20, spiders=1)) as alone, running(any_server.binary) as server:
        process = crawl(alone, 0, settings(adapter, server, BLOOMREDIS_LEASE=2))
        wait_until("a part of the site is fetched", lambda: len(alone.fetches) > 100, every=0.001)
        server.stop(signal.SIGKILL)
        assert spider.ended(process)["finish_reason"] == "bloomredis_unavailable"
    assert len(alone.fetches) < 2000


def test_a_crawl_goes_on_without_the_server_if_it_shall(any_server: Server) -> None:
    """Every request is taken for a new one."""
    nowhere = "redis://127.0.0.1:1"
    chosen = settings("BatchDedupe", any_server, BLOOMREDIS_URL=nowhere, BLOOMREDIS_ON_ERROR="new")
    with serving(Site(1, 1, spiders=1)) as one:
        stats = spider.ended(crawl(one, 0, chosen | {"DEPTH_LIMIT": 1}))
    assert stats["finish_reason"] == "finished"
    assert stats["bloomredis/errors"] >= 1
    assert [page for page, _ in one.fetches] == [0, 0]


def evals(server: Server) -> int:
    """Return the number of script calls that a server has executed."""
    with server.client(decode_responses=True) as client:
        stats: Any = client.info("commandstats")
    return int(stats.get("cmdstat_evalsha", {"calls": 0})["calls"])


async def links(count: int) -> Any:
    """Yield what a callback yields: an item, and requests of which each comes twice."""
    yield {"item": 1}
    for number in range(2 * count):
        yield Request(f"https://example.org/{number % count}")


def test_a_page_of_links_costs_one_round_trip(any_server: Server) -> None:
    """Of 100 links; items go on before them."""

    async def run() -> list[Any]:
        middleware = BatchDedupe.from_crawler(crawler("BatchDedupe", any_server))
        await middleware.seen.add("begun")
        before = evals(any_server)
        out = [each async for each in middleware.process_spider_output(None, links(100))]
        assert evals(any_server) == before + 1
        return out

    item, *requests = asyncio.run(run())
    assert item == {"item": 1}
    assert [request.url for request in requests] == [f"https://example.org/{n}" for n in range(100)]
    assert all(request.dont_filter for request in requests)


def test_what_is_asked_for_again_is_given_back(any_server: Server) -> None:
    """A 503 and a redirect leave the page free, a 404 does not."""
    from scrapy.http import Response

    async def run() -> dict[int, str]:
        middleware = ClaimWhileDownloading.from_crawler(crawler("ClaimWhileDownloading", any_server))
        states = {}
        for status in (503, 302, 404):
            request = Request(f"https://example.org/{status}")
            assert await middleware.process_request(request) is None
            await middleware.process_response(request, Response(request.url, status=status))
            item = middleware._item(request)
            states[status] = (await middleware.fetched.claim(item)).state
        return states

    assert asyncio.run(run()) == {503: "claimed", 302: "claimed", 404: "done"}


def test_the_scheduler_of_scrapy_redis_takes_the_dupefilter(any_server: Server) -> None:
    """It opens, filters and empties it, with its own fingerprints if they are asked for."""
    from scrapy_redis.scheduler import Scheduler

    made = crawler("DupeFilter", any_server, REDIS_URL=any_server.url, BLOOMREDIS_FINGERPRINT="scrapy-redis")
    made.spider = made._create_spider()
    scheduler = Scheduler.from_crawler(made)
    scheduler.open(made.spider)
    assert isinstance(scheduler.df, DupeFilter)
    request = Request("https://example.org/")
    assert [scheduler.enqueue_request(request) for _ in range(2)] == [True, False]
    from scrapy_redis.dupefilter import RFPDupeFilter

    with redis.Redis.from_url(any_server.url) as client:
        assert RFPDupeFilter(client, "set").request_fingerprint(request) in scheduler.df.seen
    scheduler.flush()
    assert scheduler.enqueue_request(request)


def test_settings_are_checked(any_server: Server) -> None:
    """A value that means nothing is an error that names the setting."""
    for name in ("BLOOMREDIS_KIND", "BLOOMREDIS_FINGERPRINT", "BLOOMREDIS_ON_ERROR"):
        with pytest.raises(ValueError, match=name):
            DupeFilter.from_crawler(crawler("DupeFilter", any_server, **{name: "nonsense"}))
