"""Spiders in several processes, on a site that this process serves."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import redis
from scrapy import Request, Spider, signals
from scrapy.exceptions import IgnoreRequest
from scrapy.spiders import CSVFeedSpider, XMLFeedSpider
from scrapy.utils.test import get_crawler

from bloomredis import ConnectionFailedError, RotatingBloomFilter, ScalingBloomFilter
from bloomredis.contrib._crawls import Aside, Batch, Marks, is_page  # the parts that adapters share
from bloomredis.contrib.scrapy import BatchDedupe, ClaimWhileDownloading, DupeFilter
from tests.contrib import spider
from tests.contrib.site import Answer, Site, serving
from tests.contrib.violence import KEPT, restart
from tests.support.clock import Clock
from tests.support.proxy import after, lost, proxied, refused, silent
from tests.support.readme import ROOT, on_page
from tests.support.servers import Server, running
from tests.support.values import for_each
from tests.support.waiting import wait_until

EXAMPLES = {
    name: block.text
    for block in on_page(ROOT / "docs" / "scrapy.md")
    for name in ("DupeFilter", "BatchDedupe", "ClaimWhileDownloading")
    if f"contrib.scrapy.{name}" in block.text
}
CONCURRENT = spider.FAST["CONCURRENT_REQUESTS"]


def settings(adapter: str, server: Server, **others: Any) -> dict[str, Any]:
    """Return the settings for an adapter on the page about Scrapy."""
    made: dict[str, Any] = {}
    exec(EXAMPLES[adapter].replace("redis://localhost", server.url), {}, made)  # noqa: S102 - the project's own page
    return made | {"BLOOMREDIS_CAPACITY": 10_000} | others


def crawler(adapter: str, server: Server, **others: Any) -> Any:
    """Return a crawler that does not crawl."""
    return get_crawler(spider.Links, settings_dict=settings(adapter, server, **others))


@pytest.fixture
def site() -> Iterator[Site]:
    """A site of 400 pages with 20 links each."""
    with serving(Site(400, 20, spiders=3)) as made:
        yield made


def scheduled(crawl: Any, url: str) -> Any:
    """Return a request as the engine gives it to the middleware of a crawl."""
    request = Request(url)
    crawl.signals.send_catch_log(signals.request_scheduled, request=request)
    return request


def item_of(crawl: Any, request: Any) -> str:
    """Return the item of a request."""
    return str(crawl.request_fingerprinter.fingerprint(request).hex())


class Mapped:
    """A site whose robots.txt names a sitemap, which lists itself and another one, which lists the pages."""

    def __init__(self) -> None:
        self.pages = ["/old"]
        self.fetches: list[str] = []
        self.url = ""

    def answer(self, path: str, spider: str) -> Answer:
        """Note a path, and return what it has."""
        del spider
        self.fetches.append(path)
        if path == "/robots.txt":
            return Answer(f"User-agent: *\nSitemap: {self.url}/map.xml\n".encode(), kind="text/plain")
        kind, listed = {
            "/map.xml": ("sitemap", ["/map.xml", "/part.xml"]),
            "/part.xml": ("url", self.pages),
        }.get(path, ("", []))
        places = "".join(f"<{kind}><loc>{self.url}{each}</loc></{kind}>" for each in listed)
        around = "sitemapindex" if kind == "sitemap" else "urlset"
        schema = "http://www.sitemaps.org/schemas/sitemap/0.9"
        return Answer(f'<{around} xmlns="{schema}">{places}</{around}>'.encode(), kind="application/xml")


@pytest.mark.parametrize("first", ["/robots.txt", "/map.xml"])
@pytest.mark.parametrize("adapter", sorted(EXAMPLES))
def test_each_crawl_reads_the_sitemaps(adapter: str, first: str, any_server: Server) -> None:
    """Once a crawl, also one that lists itself; of the pages it fetches the new ones."""
    chosen = settings(adapter, any_server)
    with serving(Mapped()) as site:
        for fetched in ("/old", "/new"):
            site.fetches.clear()
            process = spider.start(**chosen, SPIDER="Map", SPIDER_ARGUMENTS={"url": site.url + first})
            assert spider.ended(process)["finish_reason"] == "finished"
            lists = ["/map.xml", "/part.xml"] + ["/robots.txt"] * (first == "/robots.txt")
            assert sorted(site.fetches) == sorted([*lists, fetched])
            site.pages.append("/new")


class Archive(Spider):
    """A spider that says what is a page."""

    name = "archive"

    def is_page(self, request: Any) -> bool:
        """Return whether the path is not that of the archive."""
        return "/archive" not in request.url


FEEDS = {kind.__name__: kind(name="feeds") for kind in (XMLFeedSpider, CSVFeedSpider)}
LISTS: dict[str, tuple[Spider, Request, bool]] = {
    "a link": (Spider(name="a"), Request("http://a/1"), True),
    "robots.txt": (Spider(name="a"), Request("http://a/robots.txt"), False),
    "a list of the spider": (Archive(), Request("http://a/archive/2"), False),
    "a page of the spider": (Archive(), Request("http://a/robots.txt"), True),
    **{f"a feed of {name}": (feeds, Request("http://a/2"), False) for name, feeds in FEEDS.items()},
    **{
        f"a page of {name}": (feeds, Request("http://a/2", callback=feeds.parse_row), True)
        for name, feeds in FEEDS.items()
        if isinstance(feeds, CSVFeedSpider)
    },
}
"""Spiders, a request of each, and whether it is for a page."""


@for_each("kind", LISTS)
def test_the_spider_says_what_is_a_page(kind: str) -> None:
    """By its class, or by a method `is_page`."""
    by, request, expected = LISTS[kind]
    assert is_page(SimpleNamespace(spider=by), request) is expected


def crawl(site: Site, number: int, chosen: dict[str, Any]) -> subprocess.Popen[str]:
    """Start the spider of that number."""
    return spider.start(**chosen, USER_AGENT=str(number), START_URL=f"{site.url}/{number}")


def test_no_page_is_lost_with_a_spider_that_is_killed(site: Site, any_server: Server) -> None:
    """The other spiders fetch each page; only the pages that it was fetching are fetched twice."""
    chosen = settings("ClaimWhileDownloading", any_server, BLOOMREDIS_LEASE=20)
    spiders = [crawl(site, number, chosen) for number in range(3)]
    wait_until("a part of the site is fetched", lambda: len(site.fetches) > 100, every=0.001)
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
    """With the dupefilter, and three spiders that follow each link."""
    chosen = settings("DupeFilter", any_server)
    reasons = [
        spider.ended(each)["finish_reason"] for each in [crawl(site, number, chosen) for number in range(3)]
    ]
    assert reasons == ["finished"] * 3
    assert sorted(page for page, _ in site.fetches) == sorted(site.links)
    assert len({by for _, by in site.fetches}) == 3


@pytest.mark.parametrize("adapter", sorted(EXAMPLES))
def test_a_server_that_goes_is_the_reason_of_the_end(adapter: str, any_server: Server) -> None:
    """The reason is not `finished`."""
    with serving(Site(2000, 20, spiders=1)) as alone, running(any_server.binary) as server:
        chosen = settings(adapter, server, BLOOMREDIS_LEASE=2, BLOOMREDIS_PATIENCE=0.3)
        process = crawl(alone, 0, chosen)
        wait_until("a part of the site is fetched", lambda: len(alone.fetches) > 100, every=0.001)
        server.stop(signal.SIGKILL)
        assert spider.ended(process)["finish_reason"] == "bloomredis_unavailable"
    assert len(alone.fetches) < 2000


@pytest.mark.parametrize("adapter", sorted(EXAMPLES))
def test_a_crawl_outlasts_a_restart_of_the_server(adapter: str, any_server: Server) -> None:
    """In two seconds without a server, only pages that were being fetched may be fetched twice."""
    with serving(Site(2000, 10, spiders=1)) as alone, running(any_server.binary, *KEPT) as server:
        process = crawl(alone, 0, settings(adapter, server, BLOOMREDIS_LEASE=10))
        wait_until("a part of the site is fetched", lambda: len(alone.fetches) > 700, every=0.001)
        restart(server, 2)
        assert spider.ended(process)["finish_reason"] == "finished"
    counted = Counter(page for page, _ in alone.fetches)
    assert set(counted) == set(alone.links)
    twice = CONCURRENT if adapter == "ClaimWhileDownloading" else 0
    assert len(alone.fetches) - len(counted) <= twice


@pytest.mark.parametrize(
    ("adapter", "on_error"), [*((name, "close") for name in sorted(EXAMPLES)), ("BatchDedupe", "new")]
)
def test_a_filter_that_is_lost(
    adapter: str, on_error: str, any_server: Server, capfd: pytest.CaptureFixture[str]
) -> None:
    """The crawl ends at once, or goes on with an empty filter and says so."""
    more = {"BLOOMREDIS_ON_ERROR": on_error, "LOG_LEVEL": "WARNING"}
    with serving(Site(400, 10, spiders=1)) as alone:
        process = crawl(alone, 0, settings(adapter, any_server, **more))
        wait_until("a part of the site is fetched", lambda: len(alone.fetches) > 100, every=0.001)
        with any_server.client() as client:
            client.flushall()
        reason = spider.ended(process)["finish_reason"]
    log = capfd.readouterr().err
    if on_error == "close":
        assert reason == "bloomredis_unavailable"
        assert "the spider is closed" in log
    else:
        assert reason == "finished"
        assert {page for page, _ in alone.fetches} == set(alone.links)
        assert "what was added before is forgotten" in log


@pytest.mark.parametrize("adapter", sorted(EXAMPLES))
def test_ctrl_c_and_a_resume_make_each_request(adapter: str, any_server: Server, tmp_path: Path) -> None:
    """With JOBDIR; Scrapy finishes the pages that are being fetched."""
    chosen = settings(adapter, any_server, JOBDIR=str(tmp_path / "job"))
    with serving(Site(200, 10, spiders=1)) as alone:
        process = crawl(alone, 0, chosen)
        wait_until("a part of the site is fetched", lambda: len(alone.fetches) > 50, every=0.001)
        process.send_signal(signal.SIGINT)
        assert spider.ended(process)["finish_reason"] == "shutdown"
        assert len(alone.fetches) < 200
        assert spider.ended(crawl(alone, 0, chosen))["finish_reason"] == "finished"
    assert sorted({page for page, _ in alone.fetches}) == sorted(alone.links)


@pytest.mark.parametrize("adapter", ["BatchDedupe", "DupeFilter"])
def test_waiting_requests_of_a_killed_spider_stay_marked(adapter: str, any_server: Server) -> None:
    """No other spider makes them."""
    with serving(Site(300, 10, spiders=2)) as both:
        spiders = [crawl(both, number, settings(adapter, any_server)) for number in range(2)]
        wait_until("a part of the site is fetched", lambda: len(both.fetches) > 60, every=0.001)
        spiders[0].send_signal(signal.SIGKILL)
        spiders[0].communicate(timeout=120)
        assert spider.ended(spiders[1])["finish_reason"] == "finished"
    assert {page for page, _ in both.fetches} < set(both.links)


@pytest.mark.parametrize("adapter", sorted(EXAMPLES))
def test_a_resumed_crawl_asks_for_what_met_the_error(
    adapter: str, any_server: Server, tmp_path: Path
) -> None:
    """With JOBDIR all pages are fetched, and only pages that were being fetched may be fetched twice."""
    with serving(Site(800, 10, spiders=1)) as alone, running(any_server.binary, *KEPT) as server:
        more = {"BLOOMREDIS_LEASE": 2, "BLOOMREDIS_PATIENCE": 0, "JOBDIR": str(tmp_path / "job")}
        chosen = settings(adapter, server, **more)
        process = crawl(alone, 0, chosen)
        wait_until("a part of the site is fetched", lambda: len(alone.fetches) > 300, every=0.001)
        server.stop()
        assert spider.ended(process)["finish_reason"] == "bloomredis_unavailable"
        server.start()
        assert spider.ended(crawl(alone, 0, chosen))["finish_reason"] == "finished"
    counted = Counter(page for page, _ in alone.fetches)
    assert set(counted) == set(alone.links)
    assert len(alone.fetches) - len(counted) <= CONCURRENT + 1  # and the page that each run starts with


def let_crawl(crawl: Any) -> None:
    """Give a crawler its spider, as the begin of a crawl does."""
    crawl.spider = spider.Links.from_crawler(crawl)


def crawl_of(kind: Any, server: Server, url: str, folder: Path) -> Any:
    """Return a crawl that does not wait for its server, with a JOBDIR; its engine notes requests."""
    # Scrapy's own extensions want a reactor when the spider opens.
    more = {"BLOOMREDIS_PATIENCE": 0, "JOBDIR": str(folder), "BLOOMREDIS_URL": url, "EXTENSIONS_BASE": {}}
    crawl = crawler(kind.__name__, server, **more)
    let_crawl(crawl)
    scheduled: list[Any] = []
    crawl.engine = SimpleNamespace(close_spider_async=closed, crawl=scheduled.append, scheduled=scheduled)
    return crawl


async def closed(reason: str) -> None:
    """Close no spider, for the reason that the filter does not answer."""
    assert reason == "bloomredis_unavailable"


def by_url(request: Any) -> str:
    """Return the URL of a request as its item."""
    return str(request.url)


async def start(urls: list[str]) -> Any:
    """Yield requests, as at the start of a crawl, or of a callback."""
    for url in urls:
        yield Request(url)


async def let_through(made: Any, urls: list[str]) -> list[str]:
    """Return the URLs that a dupefilter or a middleware lets through."""
    if isinstance(made, DupeFilter):
        return [url for url in urls if not made.request_seen(Request(url))]
    return [request.url async for request in made.process_spider_output(None, start(urls))]


async def resumed(kind: Any, server: Server, folder: Path) -> tuple[Any, list[str]]:
    """Return the adapter of a resumed crawl, and the URLs of stored requests that it makes."""
    crawl = crawl_of(kind, server, server.url, folder)
    made = kind.from_crawler(crawl)
    crawl.signals.send_catch_log(signals.spider_opened)
    if kind is BatchDedupe:
        return made, [request.url async for request in made.process_start(start([]))]
    return made, [request.url for request in crawl.engine.scheduled if not made.request_seen(request)]


@pytest.mark.parametrize("kind", [DupeFilter, BatchDedupe])
@pytest.mark.parametrize("later", [0, 3600])
def test_a_request_that_a_lost_call_has_marked_is_made_by_the_resumed_crawl(
    kind: Any, later: int, any_server: Server, tmp_path: Path, clock: Clock
) -> None:
    """It is stored with its token.  An hour later nobody knows the answer, and each request is made."""
    urls = [f"https://example.org/{number}" for number in range(3)]

    async def run() -> list[str]:
        with proxied(any_server.socket) as proxy:
            url = f"redis://127.0.0.1:{proxy.port}"
            first = kind.from_crawler(crawl_of(kind, any_server, url, tmp_path))
            assert await let_through(first, urls[:1]) == urls[:1]
            proxy.always("add", lost)
            assert await let_through(first, urls) == []
        if later:
            with any_server.client() as client:
                client.delete(*client.keys("*receipt*"))
            clock.advance(later)
        second, found = await resumed(kind, any_server, tmp_path)
        assert await let_through(second, urls) == []
        return found

    assert asyncio.run(run()) == (urls if later else urls[1:])


@pytest.mark.parametrize("kind", [DupeFilter, BatchDedupe])
def test_a_request_stored_for_the_resumed_crawl_stays_unmarked(
    kind: Any, any_server: Server, tmp_path: Path
) -> None:
    """Also if the server is back when the spider is closed, and if several links led to the request."""
    url = "https://example.org/"

    async def run() -> list[str]:
        with proxied(any_server.socket) as proxy:
            crawl = crawl_of(kind, any_server, f"redis://127.0.0.1:{proxy.port}", tmp_path)
            first = kind.from_crawler(crawl)
            proxy.always("add", refused("OOM command not allowed when used memory > 'maxmemory'."))
            for _ in range(2):
                assert await let_through(first, [url, url]) == []
            proxy.calm()
            if isinstance(first, DupeFilter):
                first.close("bloomredis_unavailable")
            await crawl.signals.send_catch_log_async(signals.spider_closed)
            _, found = await resumed(kind, any_server, tmp_path)
            return found

    assert asyncio.run(run()) == [url]


def test_a_request_made_without_the_server_is_not_made_by_a_late_answer(any_server: Server) -> None:
    """A call that succeeds beside the failed one, and one that marks the request before that one's answer."""

    async def run() -> None:
        more = {"BLOOMREDIS_ON_ERROR": "new", "BLOOMREDIS_PATIENCE": 0}
        crawl = crawler("BatchDedupe", any_server, **more)
        seen, marks = BatchDedupe.from_crawler(crawl).seen, Marks(crawl, "BatchDedupe", by_url)
        late, failed, marking = (Batch(marks, [Request("https://example.org/")]) for _ in range(3))
        late.answered(await late.ask(seen))
        assert failed.failed(ConnectionFailedError("away")) is None
        assert len(failed.new()) == 1
        marks.failures.succeed(time.monotonic())
        marking.answered(await marking.ask(seen))
        assert marks.passed == {}
        assert (late.new(), marking.new()) == ([], [])

    asyncio.run(run())


def test_an_answer_from_before_an_outage_does_not_end_it(
    any_server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    """The crawl warns once, until a call that began after the failures is answered."""
    more = {"BLOOMREDIS_ON_ERROR": "new", "BLOOMREDIS_PATIENCE": 0}

    async def run() -> None:
        crawl = crawler("BatchDedupe", any_server, **more)
        seen, marks = BatchDedupe.from_crawler(crawl).seen, Marks(crawl, "BatchDedupe", by_url)
        early, first, second, later = (
            Batch(marks, [Request(f"https://example.org/{number}")]) for number in range(4)
        )
        answers = await early.ask(seen)
        for failing in (first, second):
            assert failing.failed(ConnectionFailedError("away")) is None
            early.answered(answers)
            assert len(early.new()) == 1
            assert marks.failures.is_away
        assert caplog.text.count("count as new") == 1
        later.answered(await later.ask(seen))
        assert not marks.failures.is_away
        assert second.failed(ConnectionFailedError("away again")) is None
        assert caplog.text.count("count as new") == 2

    asyncio.run(run())


@pytest.mark.parametrize(
    ("fate", "crawls", "is_cancelled_twice"),
    [(lost, 2, False), (refused("OOM command not allowed"), 2, False), (silent, 1, False), (silent, 1, True)],
)
def test_a_crawl_that_ends_while_it_waits_stores_its_requests(
    fate: Any,
    crawls: int,
    is_cancelled_twice: bool,  # noqa: FBT001 - of the cases
    any_server: Server,
    tmp_path: Path,
) -> None:
    """Also while it asks about a stored request.  The resumed crawl makes each request once."""
    url = "https://example.org/"

    async def run() -> list[str]:
        await BatchDedupe.from_crawler(crawler("BatchDedupe", any_server)).seen.add("loads the script")
        with proxied(any_server.socket) as proxy:
            for number in range(crawls):
                arrived = threading.Event()
                proxy.always("add", after(arrived.set, fate))
                more = {"JOBDIR": str(tmp_path), "BLOOMREDIS_URL": f"redis://127.0.0.1:{proxy.port}"}
                middleware = BatchDedupe.from_crawler(crawler("BatchDedupe", any_server, **more))
                seen = middleware.process_start(start([] if number else [url]))
                asked = asyncio.ensure_future(anext(seen))
                assert await asyncio.to_thread(arrived.wait, 60)
                asked.cancel()
                if is_cancelled_twice:
                    await asyncio.sleep(0)
                    asked.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await asked
        again = BatchDedupe.from_crawler(crawler("BatchDedupe", any_server, JOBDIR=str(tmp_path)))
        return [request.url async for request in again.process_start(start([url]))]

    found = asyncio.run(run())
    assert found == [url]


@pytest.mark.parametrize("kind", [DupeFilter, BatchDedupe])
def test_a_request_stored_with_a_token_is_made_once(kind: Any, any_server: Server, tmp_path: Path) -> None:
    """Also if another link leads to it when the server is back, while the spider is closed."""
    url = "https://example.org/"

    async def run() -> list[str]:
        with proxied(any_server.socket) as proxy:
            through = f"redis://127.0.0.1:{proxy.port}"
            first = kind.from_crawler(crawl_of(kind, any_server, through, tmp_path))
            assert await let_through(first, [f"{url}loads-the-script"])
            proxy.always("add", lost)
            assert await let_through(first, [url]) == []
            proxy.calm()
            assert await let_through(first, [url]) == []
        _, found = await resumed(kind, any_server, tmp_path)
        return found

    assert asyncio.run(run()) == [url]


def test_a_batch_whose_crawl_ends_stores_each_request_once(any_server: Server, tmp_path: Path) -> None:
    """And none that was made before: unmarked, and marked by a batch beside it."""
    crawl = crawler("BatchDedupe", any_server, JOBDIR=str(tmp_path))
    let_crawl(crawl)

    marks = Marks(crawl, "BatchDedupe", by_url)
    urls = ["https://example.org/", "https://example.org/made"]
    batch = Batch(marks, [Request(url) for url in urls * 2])
    batch.is_in_doubt = True
    marks.marked(urls[1:])
    batch.put_aside()
    assert [request.url for request in marks.aside.take()] == urls[:1]


def test_a_damaged_file_of_stored_requests(
    any_server: Server, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The requests before the damage are made, and the file is kept for the others."""
    crawl = crawler("DupeFilter", any_server, JOBDIR=str(tmp_path))
    let_crawl(crawl)
    aside = Aside(crawl, "DupeFilter")
    for number in range(3):
        assert aside.put(Request(f"https://example.org/{number}"), None)
    path = tmp_path / "bloomredis.DupeFilter"
    path.write_bytes(path.read_bytes()[:-20])
    assert [request.url[-1] for request in aside.take()] == ["0", "1"]
    assert "only the first 2 stored requests can be read" in caplog.text
    assert [each.name for each in tmp_path.iterdir()] == ["bloomredis.DupeFilter.damaged"]
    assert aside.take() == []


@pytest.mark.parametrize("is_closed", [True, False])
def test_new_requests_that_scrapy_did_not_take_are_stored(
    is_closed: bool,  # noqa: FBT001 - of the cases
    any_server: Server,
    tmp_path: Path,
) -> None:
    """If the crawl ends between two of them, the resumed crawl makes the others."""
    urls = [f"https://example.org/{number}" for number in range(5)]

    async def run() -> list[str]:
        crawl = crawl_of(BatchDedupe, any_server, any_server.url, tmp_path)
        new: Any = BatchDedupe.from_crawler(crawl).process_spider_output(None, start(urls))
        taken = [(await anext(new)).url for _ in range(2)]
        if is_closed:
            await new.aclose()
            while not (tmp_path / "bloomredis.BatchDedupe").exists():  # noqa: ASYNC110 - the loop ends the inner one
                await asyncio.sleep(0)
        else:
            await crawl.signals.send_catch_log_async(signals.spider_closed)
        begun = BatchDedupe.from_crawler(crawl).process_start(start(urls))
        taken.append((await anext(begun)).url)
        # as at Ctrl-C, when Scrapy leaves its generator as it is
        await crawl.signals.send_catch_log_async(signals.spider_closed)
        again = BatchDedupe.from_crawler(crawl)
        return taken + [request.url async for request in again.process_start(start(urls))]

    assert asyncio.run(run()) == urls


def test_requests_before_the_error_of_a_callback_are_made(any_server: Server) -> None:
    """As without the middleware; the error follows."""

    async def callback() -> Any:
        for number in range(3):
            yield Request(f"https://example.org/{number}")
        raise LookupError("a page with an error")

    async def run() -> list[str]:
        middleware = BatchDedupe.from_crawler(crawler("BatchDedupe", any_server))
        made = []
        try:
            async for request in middleware.process_spider_output(None, callback()):
                made.append(request.url)  # noqa: PERF401 - before the error
        except LookupError:
            return made
        pytest.fail("the error did not follow")

    assert asyncio.run(run()) == [f"https://example.org/{number}" for number in range(3)]


@pytest.mark.parametrize("status", [302, 200])
def test_a_response_waits_for_the_server(
    status: int, any_server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    """A claim is ended when the server is back; a redirect does not close the spider."""
    from scrapy.http import Response

    async def run(server: Server) -> str:
        crawl = crawler("ClaimWhileDownloading", server)
        middleware = ClaimWhileDownloading.from_crawler(crawl)
        request = scheduled(crawl, "https://example.org/")
        assert await middleware.process_request(request) is None
        server.stop()
        ending = asyncio.ensure_future(
            middleware.process_response(request, Response(request.url, status=status))
        )
        while not any(each in caplog.text for each in ("commits are retried", "the crawl waits")):  # noqa: ASYNC110
            await asyncio.sleep(0.001)
        server.start()
        assert (await ending).status == status
        return str((await middleware.fetched.claim(item_of(crawl, request))).state)

    with running(any_server.binary, *KEPT) as server:
        assert asyncio.run(run(server)) == ("done" if status == 200 else "claimed")


@pytest.mark.parametrize("adapter", sorted(EXAMPLES))
def test_a_crawl_goes_on_without_the_server_if_it_shall(
    adapter: str, any_server: Server, capfd: pytest.CaptureFixture[str]
) -> None:
    """The process remembers the requests that it made unmarked, marks them later, and warns once."""
    more = {"BLOOMREDIS_ON_ERROR": "new", "BLOOMREDIS_PATIENCE": 0, "LOG_LEVEL": "WARNING"}
    with serving(Site(600, 10, spiders=1)) as alone, running(any_server.binary, *KEPT) as server:
        process = crawl(alone, 0, settings(adapter, server, BLOOMREDIS_LEASE=2, **more))
        wait_until("a part of the site is fetched", lambda: len(alone.fetches) > 50, every=0.001)
        server.stop()
        wait_until("another part is", lambda: len(alone.fetches) > 250, every=0.001)
        server.start()
        stats = spider.ended(process)
        assert stats["finish_reason"] == "finished"
        assert stats["bloomredis/errors"] >= 1
        counted = Counter(page for page, _ in alone.fetches)
        assert set(counted) == set(alone.links)
        assert len(alone.fetches) - len(counted) <= CONCURRENT
        name = settings(adapter, server).get("BLOOMREDIS_NAME", "links:seen")
        name = "links:fetched" if adapter == "ClaimWhileDownloading" else name % {"spider": "links"}
        marked = ScalingBloomFilter.open(server.client(), name).info().count
        assert marked + stats.get("bloomredis/lost", 0) >= 600  # a lease may end while the server is away
    warnings = [line for line in capfd.readouterr().err.splitlines() if "count as new" in line]
    assert len(warnings) == 1


@pytest.mark.parametrize("adapter", ["BatchDedupe", "ClaimWhileDownloading"])
def test_another_reactor_is_refused_at_the_start(
    adapter: str, any_server: Server, capfd: pytest.CaptureFixture[str]
) -> None:
    """Because asyncio does not run in its loop."""
    reactor = "twisted.internet.selectreactor.SelectReactor"
    with serving(Site(1, 1, spiders=1)) as one:
        process = crawl(one, 0, settings(adapter, any_server, TWISTED_REACTOR=reactor))
        process.communicate(timeout=60)
        assert one.fetches == []
    assert f"RuntimeError: {adapter} needs the asyncio reactor" in capfd.readouterr().err


def evals(server: Server) -> int:
    """Return the number of script calls that a server has executed."""
    with server.client(decode_responses=True) as client:
        stats: Any = client.info("commandstats")
    return int(stats.get("cmdstat_evalsha", {"calls": 0})["calls"])


async def links(count: int) -> Any:
    """Yield the output of a callback: an item, and each request twice."""
    yield {"item": 1}
    for number in range(2 * count):
        yield Request(f"https://example.org/{number % count}")


def test_a_page_of_links_costs_one_round_trip(any_server: Server) -> None:
    """For 100 links; items are passed on before them."""

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
    """After a 503 and a redirect the page is free; after a 404 it is done."""
    from scrapy.http import Response

    async def run() -> dict[int, str]:
        crawl = crawler("ClaimWhileDownloading", any_server)
        middleware = ClaimWhileDownloading.from_crawler(crawl)
        states = {}
        for status in (503, 302, 404):
            request = scheduled(crawl, f"https://example.org/{status}")
            assert await middleware.process_request(request) is None
            await middleware.process_response(request, Response(request.url, status=status))
            states[status] = (await middleware.fetched.claim(item_of(crawl, request))).state
        return states

    assert asyncio.run(run()) == {503: "claimed", 302: "claimed", 404: "done"}


def test_a_page_that_is_busy_goes_to_the_end_of_the_queue(any_server: Server) -> None:
    """Until it is done; then it is ignored."""
    from scrapy.http import Response

    async def run() -> None:
        crawls = [crawler("ClaimWhileDownloading", any_server) for _ in range(2)]
        one, other = map(ClaimWhileDownloading.from_crawler, crawls)
        url = "https://example.org/"
        first, second = (scheduled(each, url) for each in crawls)
        assert await one.process_request(first) is None
        later = await other.process_request(second)
        assert (later.url, later.priority, later.dont_filter) == (url, second.priority - 1, True)
        await one.process_response(first, Response(url))
        with pytest.raises(IgnoreRequest, match="was fetched before"):
            await other.process_request(later)

    asyncio.run(run())


def test_the_scheduler_of_scrapy_redis_takes_the_dupefilter(any_server: Server) -> None:
    """It opens, uses and empties the dupefilter, with its own fingerprints if the settings say so."""
    from scrapy_redis.scheduler import Scheduler

    made = crawler("DupeFilter", any_server, REDIS_URL=any_server.url, BLOOMREDIS_FINGERPRINT="scrapy-redis")
    let_crawl(made)
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


class Shop:
    """A site with robots.txt, a redirect, a page that fails at first, and one that is empty at first."""

    def __init__(self) -> None:
        self.url = ""
        self.fetches: Counter[str] = Counter()

    def answer(self, path: str, spider: str) -> Answer:
        """Answer a request."""
        self.fetches[path] += 1
        is_first = self.fetches[path] == 1
        return {
            "/robots.txt": Answer(b"User-agent: *\nDisallow: /private/\n", kind="text/plain"),
            "/moved": Answer(status=302, location="/target"),
            "/flaky": Answer(status=503 if is_first else 200),
            "/empty": Answer(b"" if is_first else b"full"),
        }.get(path, Answer(b"full"))


TWO_CRAWLS: dict[str, tuple[int, int]] = {  # fetches with marks, with claims
    "/robots.txt": (2, 2),
    "/start": (2, 2),  # Scrapy makes start_urls with dont_filter
    "/photo": (2, 2),
    "/price": (2, 2),  # by engine.download_async()
    "/basket": (2, 2),  # dont_filter, twice in the first crawl
    "/product": (1, 1),
    "/product?page=2": (1, 1),
    "/moved": (1, 2),  # the claim is on the target
    "/target": (1, 1),
    "/flaky": (2, 2),  # a retry in the first crawl
    "/empty": (2, 2),  # a retry by the callback in the first crawl
    "/unclaimed": (1, 2),
    "/claimed": (2, 1),
}


@pytest.mark.parametrize("adapter", sorted(EXAMPLES))
def test_only_what_the_spider_schedules_is_marked(adapter: str, any_server: Server, tmp_path: Path) -> None:
    """Two crawls, one after the other, obey robots.txt and give each item its file."""
    chosen = settings(adapter, any_server, SPIDER="Shop", ROBOTSTXT_OBEY=True, RETRY_ENABLED=True)
    with serving(Shop()) as shop:
        for number in range(2):
            stats = spider.ended(
                spider.start(
                    **chosen,
                    USER_AGENT=str(number),
                    SPIDER_ARGUMENTS={"url": shop.url},
                    ITEM_PIPELINES={"scrapy.pipelines.files.FilesPipeline": 1},
                    FILES_STORE=str(tmp_path / str(number)),
                )
            )
            assert stats["finish_reason"] == "finished"
            assert stats["file_status_count/downloaded"] == 1
            assert stats["robotstxt/forbidden"] == 1
    claims = adapter == "ClaimWhileDownloading"
    assert shop.fetches == {path: counts[claims] for path, counts in TWO_CRAWLS.items()}


def test_a_queue_outside_the_spider_gets_a_request_without_an_answer(any_server: Server) -> None:
    """Without JOBDIR, the dupefilter lets the request through unmarked while the crawl ends."""
    with proxied(any_server.socket) as proxy:
        more = {"BLOOMREDIS_PATIENCE": 0, "BLOOMREDIS_URL": f"redis://127.0.0.1:{proxy.port}"}
        crawl = crawler("DupeFilter", any_server, **more)
        crawl.engine = SimpleNamespace(close_spider_async=closed)
        made = DupeFilter.from_crawler(crawl)
        made.seen.create()
        proxy.always("add", refused("OOM command not allowed when used memory > 'maxmemory'."))

        async def seen() -> bool:
            return made.request_seen(Request("https://example.org/"))

        assert not asyncio.run(seen())
        proxy.calm()
        assert made.seen.info().count == 0


def test_the_kind_of_the_filter(any_server: Server) -> None:
    """The settings of the page make a filter that forgets."""
    more = {"BLOOMREDIS_KIND": "rotating", "BLOOMREDIS_OPTIONS": {"window": 86_400}}
    made = DupeFilter.from_crawler(crawler("DupeFilter", any_server, **more))
    assert isinstance(made.seen, RotatingBloomFilter)
    assert not made.request_seen(Request("https://example.org/"))
    assert made.request_seen(Request("https://example.org/"))


def test_a_key_of_ones_own(any_server: Server) -> None:
    """The fingerprinter of the page makes two addresses of one product one request."""
    (text,) = (block.text for block in on_page(ROOT / "docs" / "scrapy.md") if "ByProduct" in block.text)
    names: dict[str, Any] = {"__name__": "fingerprints"}
    exec(text, names)  # noqa: S102 - the project's own page
    of = {"REQUEST_FINGERPRINTER_CLASS": names["ByProduct"]}
    made = DupeFilter.from_crawler(crawler("DupeFilter", any_server, **of))
    asked = [("a", {"product": 7}), ("b", {"product": 7}), ("a", {}), ("a", {})]
    requests = [Request(f"https://example.org/{path}", meta=meta) for path, meta in asked]
    assert [made.request_seen(request) for request in requests] == [False, True, False, True]


def test_settings_are_checked(any_server: Server) -> None:
    """An invalid value raises an error that names the setting."""
    nonsense = dict.fromkeys(("BLOOMREDIS_KIND", "BLOOMREDIS_FINGERPRINT", "BLOOMREDIS_ON_ERROR"), "nonsense")
    for name, value in (nonsense | {"BLOOMREDIS_PATIENCE": "-1"}).items():
        with pytest.raises(ValueError, match=name):
            DupeFilter.from_crawler(crawler("DupeFilter", any_server, **{name: value}))
