"""Scrapy: spiders in several processes share the requests that they have seen, or the pages fetched.

`DupeFilter` and `BatchDedupe` mark a request when it is scheduled.  `ClaimWhileDownloading` marks it when
its response has arrived, so if a spider dies, another spider fetches its pages.

Settings, with their defaults::

    BLOOMREDIS_URL = "redis://localhost"
    BLOOMREDIS_NAME = "%(spider)s:seen"  # the filter of DupeFilter and BatchDedupe
    BLOOMREDIS_CLAIMS_NAME = "%(spider)s:fetched"  # the filter of ClaimWhileDownloading
    BLOOMREDIS_KIND = "scaling"  # or "plain", or "rotating"
    BLOOMREDIS_CAPACITY = 1_000_000
    BLOOMREDIS_ERROR_RATE = 1e-6
    BLOOMREDIS_OPTIONS = {}  # more parameters, such as {"window": 86_400} of a rotating filter
    BLOOMREDIS_FINGERPRINT = "scrapy"  # or "scrapy-redis", if you have loaded its set of fingerprints
    BLOOMREDIS_LEASE = 30.0  # a dead spider's pages are free after so many seconds
    BLOOMREDIS_PATIENCE = 30.0  # seconds to wait for a server that does not answer
    BLOOMREDIS_ON_ERROR = "close"  # after that wait; or "new": continue, and make each request once
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from functools import partial
from typing import Any, Final, Self
from weakref import WeakKeyDictionary

import redis.asyncio.retry
import redis.retry
from redis.backoff import NoBackoff

import bloomredis.asyncio
from bloomredis.contrib import needs
from bloomredis.contrib._flavours import at_once, awaited
from bloomredis.contrib._outages import PAUSE

with needs("scrapy", "Scrapy"):
    from scrapy import Request, signals
    from scrapy.dupefilters import BaseDupeFilter
    from scrapy.exceptions import IgnoreRequest
    from scrapy.utils.asyncio import is_asyncio_available

    from bloomredis.contrib._crawls import Batch, Failures, Marks, Memory, is_page, policy_of

__all__ = ["BatchDedupe", "ClaimWhileDownloading", "DupeFilter"]

KINDS: Final = {"plain": "BloomFilter", "scaling": "ScalingBloomFilter", "rotating": "RotatingBloomFilter"}
LARGEST: Final = 1000
"""The largest number of requests in a batch."""
REDIRECTS: Final = frozenset((301, 302, 303, 307, 308))
CLAIM: Final = "bloomredis_claim"
"""The key in a request's meta that is true if its page is to be claimed."""

_log = logging.getLogger("bloomredis")


def _filter(crawler: Any, half: Any, setting: str, default: str) -> Any:
    """Return the filter of the settings, of `bloomredis` or `bloomredis.asyncio`; nothing is sent."""
    settings = crawler.settings
    kind = settings.get("BLOOMREDIS_KIND", "scaling")
    if kind not in KINDS:
        raise ValueError(f"BLOOMREDIS_KIND must be one of {', '.join(KINDS)}, not {kind!r}")
    url = settings.get("BLOOMREDIS_URL", "redis://localhost")
    cls = getattr(half, KINDS[kind])
    # The crawl stands still while a client retries.  This adapter repeats calls, as BLOOMREDIS_PATIENCE says.
    retry = (redis.retry if half is bloomredis else redis.asyncio.retry).Retry(NoBackoff(), 0)
    is_lazy = "+cluster" in url  # a client of a cluster connects when it is made, and retries in its own way
    make = cls.from_url if is_lazy else cls
    return make(
        url if is_lazy else half.connect(url, retry=retry),
        settings.get(setting, default) % {"spider": crawler.spidercls.name},
        capacity=settings.getint("BLOOMREDIS_CAPACITY", 1_000_000),
        error_rate=settings.getfloat("BLOOMREDIS_ERROR_RATE", 1e-6),
        **({"on_lost": "recreate"} if policy_of(settings) == "new" else {})
        | settings.getdict("BLOOMREDIS_OPTIONS"),
    )


def _check_reactor(adapter: object) -> None:
    """Raise `RuntimeError` if no asyncio loop runs, since every call would wait forever."""
    if not is_asyncio_available():
        raise RuntimeError(
            f"{type(adapter).__name__} needs the asyncio reactor, which is Scrapy's default: leave "
            "TWISTED_REACTOR out of the settings, or use DupeFilter"
        )


def _fingerprints(crawler: Any) -> Callable[[Any], str]:
    """Return a function from a request to its item, the fingerprint in hexadecimal."""
    kind = crawler.settings.get("BLOOMREDIS_FINGERPRINT", "scrapy")
    if kind == "scrapy":
        return lambda request: str(crawler.request_fingerprinter.fingerprint(request).hex())
    if kind != "scrapy-redis":
        raise ValueError(f"BLOOMREDIS_FINGERPRINT must be 'scrapy' or 'scrapy-redis', not {kind!r}")
    from scrapy_redis.dupefilter import RFPDupeFilter  # noqa: PLC0415 - few programs have both

    made: Callable[[Any], str] = RFPDupeFilter(None, "").request_fingerprint
    return made


class _OfCrawler:
    """A component that Scrapy makes for a crawl."""

    def __init__(self, crawler: Any) -> None:
        self._crawler = crawler
        self._stats = crawler.stats

    @classmethod
    def from_crawler(cls, crawler: Any) -> Self:
        """Return the component of a crawl."""
        return cls(crawler)


class DupeFilter(_OfCrawler, BaseDupeFilter):
    """A dupefilter that all spiders with the same filter share, also in the scheduler of scrapy-redis.

    Exactly one spider makes a request, at the cost of one round trip.  While the server does not answer,
    Scrapy waits.  If the server stays away, the spider is closed, and the request stays in JOBDIR or in a
    queue outside the spider.
    """

    def __init__(self, crawler: Any) -> None:
        super().__init__(crawler)
        self._marks = Marks(crawler, "DupeFilter", _fingerprints(crawler))
        self._lists: set[str] = set()  # items of requests for sitemaps and the like, in this crawl
        self.seen = _filter(crawler, bloomredis, "BLOOMREDIS_NAME", "%(spider)s:seen")
        crawler.signals.connect(self._resume, signals.spider_opened)

    @classmethod
    def from_spider(cls, spider: Any) -> Self:
        """Return the dupefilter of a spider; scrapy-redis calls this."""
        return cls(spider.crawler)

    def _resume(self) -> None:
        """Schedule the requests that got no answer in an earlier run."""
        for request in self._marks.aside.take():
            self._crawler.engine.crawl(request)

    def request_seen(self, request: Any) -> bool:
        """Mark a request, and return True if one like it was marked before.

        A request for a list of pages is not marked; this crawl makes it once.
        """
        if not is_page(self._crawler, request):
            item, count = self._marks.item(request), len(self._lists)
            self._lists.add(item)
            return len(self._lists) == count
        batch = Batch(self._marks, [request])
        while batch.has_next:
            try:
                batch.answered(batch.ask(self.seen))
            except bloomredis.BloomError as error:
                if (pause := batch.failed(error)) is None:
                    break
                time.sleep(pause)
        return not batch.new()

    def close(self, reason: str) -> None:
        """Mark the requests that were made unmarked, if the filter answers by now."""
        at_once(_mark(self.seen, list(self._marks.passed)))

    def clear(self) -> None:
        """Forget all requests of all spiders; scrapy-redis calls this when it empties its queue."""
        self.seen.clear()

    def log(self, request: Any, spider: Any) -> None:
        """Count a request that was not made."""
        _log.debug("filtered duplicate request: %s", request, extra={"spider": spider})
        self._stats.inc_value("dupefilter/filtered")


class BatchDedupe(_OfCrawler):
    """A spider middleware that asks about all requests of a callback together, while the reactor continues.

    A page with 100 links costs one round trip.  New requests are passed on with `dont_filter=True`; requests
    that already have it, and those for lists of pages, are not checked.  The middleware needs the asyncio
    reactor, Scrapy's default.
    """

    def __init__(self, crawler: Any) -> None:
        _check_reactor(self)
        super().__init__(crawler)
        self._marks = Marks(crawler, "BatchDedupe", _fingerprints(crawler))
        self._untaken: list[deque[Any]] = []  # requests that Scrapy has yet to take
        self.seen = _filter(crawler, bloomredis.asyncio, "BLOOMREDIS_NAME", "%(spider)s:seen")
        crawler.signals.connect(self._close, signals.spider_closed)

    async def process_start(self, start: AsyncIterator[Any]) -> AsyncIterator[Any]:
        """Yield the new start requests of a crawl, one by one."""
        stored = self._keep(self._marks.aside.take())
        while stored:
            async for kept in self._asked(stored.popleft()):
                yield kept
        async for each in start:
            async for kept in self._asked(each):
                yield kept

    async def _asked(self, each: Any) -> AsyncIterator[Any]:
        """Yield a request if it is new or not to be asked about, or an item."""
        if not self._is_asked_for(each):
            yield each
            return
        async for kept in self._new([each]):
            yield kept

    async def process_spider_output(self, response: Any, result: AsyncIterator[Any]) -> AsyncIterator[Any]:
        """Yield the items and the new requests of a callback, also those before its error."""
        batch: list[Any] = []
        failure: Exception | None = None
        try:
            async for each in result:
                if not self._is_asked_for(each):
                    yield each
                    continue
                batch.append(each)
                if len(batch) == LARGEST:
                    asked, batch = batch, []
                    async for kept in self._new(asked):
                        yield kept
        except Exception as error:
            failure = error
        async for kept in self._new(batch):
            yield kept
        if failure is not None:
            raise failure

    def _is_asked_for(self, each: object) -> bool:
        return isinstance(each, Request) and not each.dont_filter and is_page(self._crawler, each)

    async def _new(self, requests: list[Any]) -> AsyncGenerator[Any, None]:
        """Mark requests, and yield those that are to be made.

        If the crawl ends meanwhile, the requests without an answer, and those that were not yielded, are
        stored for the resumed crawl.
        """
        batch = Batch(self._marks, requests)
        try:
            while batch.has_next:
                try:
                    await _answer(batch, self.seen)
                except bloomredis.BloomError as error:
                    if (pause := batch.failed(error)) is None:
                        break
                    await asyncio.sleep(pause)
            new = self._keep([request.replace(dont_filter=True) for request in batch.new()])
            self._stats.inc_value("dupefilter/filtered", len(requests) - len(new))
        except BaseException:
            batch.put_aside()
            raise
        try:
            while new:
                yield new.popleft()
        finally:
            self._store(new)

    def _keep(self, requests: list[Any]) -> deque[Any]:
        """Return a queue of requests; what Scrapy does not take of it is stored when the spider is closed."""
        queue = deque(requests)
        self._untaken = [*filter(None, self._untaken), queue]
        return queue

    def _store(self, requests: deque[Any]) -> None:
        """Store requests for the resumed crawl, and empty the queue."""
        while requests:
            self._marks.aside.put(requests.popleft(), None)

    async def _close(self) -> None:
        for requests in self._untaken:
            self._store(requests)
        await _mark(self.seen, list(self._marks.passed))


async def _answer(batch: Batch, seen: Any) -> None:
    """Ask about the next items of a batch; if the crawl ends meanwhile, take the answers first."""
    call = asyncio.ensure_future(batch.ask(seen))
    try:
        batch.answered(await asyncio.shield(call))
    except asyncio.CancelledError:
        batch.is_in_doubt = True
        try:
            batch.answered(await asyncio.wait_for(call, PAUSE))
            batch.is_in_doubt = False
        except bloomredis.BloomError as error:
            batch.note(error)
            batch.is_in_doubt = False
        except TimeoutError:
            pass
        raise


async def _mark(seen: Any, items: list[str]) -> None:
    """Mark requests that were made unmarked, at the end of a crawl, if the filter answers by now."""
    try:
        await awaited(seen.add_many(items))
    except bloomredis.BloomError as error:
        _log.warning("%d requests were made and stay unmarked in the filter: %s", len(items), error)


class ClaimWhileDownloading(_OfCrawler):
    """A downloader middleware that claims a page while it is downloaded, and marks it after that.

    Its place is 620 in DOWNLOADER_MIDDLEWARES, between cookies and redirects.

    * A page that is done is ignored (`IgnoreRequest`).
    * A page that another spider is downloading goes to the end of the queue, until it is done or that
      spider's lease ends.
    * A redirect, and a response that Scrapy retries, give the page back.
    * While the server does not answer, requests wait; if it stays away, they go back to the queue.
    * Only requests for pages that the spider schedules are claimed.  Those for robots.txt, sitemaps and
      feeds, of media pipelines and of `engine.download_async()` are not, nor one with `dont_filter=True`.
    * `meta={"bloomredis_claim": False}` or `True` decides for one request.

    The middleware needs the asyncio reactor, Scrapy's default.
    """

    def __init__(self, crawler: Any) -> None:
        _check_reactor(self)
        super().__init__(crawler)
        settings = crawler.settings
        self._item = _fingerprints(crawler)
        self._failures = Failures(crawler)
        self._lease = settings.getfloat("BLOOMREDIS_LEASE", 30.0)
        self._again = {int(code) for code in settings.getlist("RETRY_HTTP_CODES")}
        self._claims: WeakKeyDictionary[Any, Any] = WeakKeyDictionary()  # None for a request without a claim
        self._unclaimed: set[str] = set()  # items of pages requested without a claim, still unmarked
        self._unmarked: set[str] = set()  # the items of `_unclaimed` whose pages were downloaded
        self._marked = Memory(self._failures)
        self.fetched = _filter(crawler, bloomredis.asyncio, "BLOOMREDIS_CLAIMS_NAME", "%(spider)s:fetched")
        crawler.signals.connect(self._choose, signals.request_scheduled)
        crawler.signals.connect(self._close, signals.spider_closed)

    def _choose(self, request: Any) -> None:
        """Let a scheduled request be claimed, also when a copy of it with `dont_filter` is scheduled later.

        Scrapy schedules such copies for retries, and `process_request` for pages that are busy.
        """
        if not request.dont_filter and is_page(self._crawler, request):
            request.meta.setdefault(CLAIM, True)

    async def process_request(self, request: Any) -> Any:
        """Claim a page; return the request to be made later if the page is busy."""
        if not request.meta.get(CLAIM):
            return None
        item = self._item(request)
        claim = await self._failures.patiently(partial(self._claim, item))
        if claim is None and self._failures.is_closing:
            return request.replace(dont_filter=True)
        if claim is None:
            return self._let_through(request, item)
        self._stats.inc_value(f"bloomredis/{claim.state}")
        if claim:
            self._claims[request] = claim
            return None
        if claim.state == "done":
            raise IgnoreRequest("the page was fetched before")
        await asyncio.sleep(min(claim.remaining, PAUSE))
        return request.replace(dont_filter=True, priority=request.priority - 1)

    async def _claim(self, item: str) -> Any:
        """Return a claim, once the pages that were downloaded without one are marked."""
        if self._unmarked:
            await self._mark()
        return await self.fetched.claim(item, lease=self._lease)

    async def _mark(self) -> None:
        """Mark the pages that were downloaded without a claim."""
        marked = list(self._unmarked)
        await self.fetched.add_many(marked)
        for item in marked:
            self._marked.add(item)
        self._unmarked.difference_update(marked)
        self._unclaimed.difference_update(marked)

    async def _close(self) -> None:
        await _mark(self.fetched, list(self._unmarked))

    def _let_through(self, request: Any, item: str) -> None:
        """Let this process download a page once without a claim."""
        if item in self._unclaimed or item in self._marked:
            raise IgnoreRequest("the page was requested before, while the filter did not answer")
        self._unclaimed.add(item)
        self._claims[request] = None

    async def process_response(self, request: Any, response: Any) -> Any:
        """Mark a page as fetched, or give it back if Scrapy will request it again."""
        if request in self._claims:
            is_final = response.status not in self._again and response.status not in REDIRECTS
            await self._end(request, is_final=is_final)
        return response

    async def process_exception(self, request: Any, exception: Exception) -> None:
        """Give a page back after its download failed."""
        if request in self._claims:
            await self._end(request, is_final=False)

    async def _end(self, request: Any, *, is_final: bool) -> None:
        """End a claim.  This spider has the response, so a lost claim only counts in the stats."""
        claim, item = self._claims.pop(request), self._item(request)
        if is_final:
            del request.meta[CLAIM]  # a callback may make the request once more, or pass its meta on
        if claim is None:
            (self._unmarked.add if is_final else self._unclaimed.discard)(item)
            return
        try:
            await self._failures.patiently(claim.commit if is_final else claim.release)
        except bloomredis.ClaimLostError:
            self._stats.inc_value("bloomredis/lost")
            return
        if is_final and claim.state == "done":
            self._marked.add(item)
        elif is_final:
            self._unclaimed.add(item)
            self._unmarked.add(item)
