"""Scrapy: spiders in several processes that share what they have seen, or what they have fetched.

`DupeFilter` and `BatchDedupe` mark a request when it is scheduled; `ClaimWhileDownloading` marks it when
its response is there, so that another spider fetches the pages of one that dies.

Settings, with their defaults::

    BLOOMREDIS_URL = "redis://localhost"
    BLOOMREDIS_NAME = "%(spider)s:seen"  # of the filter of DupeFilter and BatchDedupe
    BLOOMREDIS_CLAIMS_NAME = "%(spider)s:fetched"  # of the filter of ClaimWhileDownloading
    BLOOMREDIS_KIND = "scaling"  # or "plain", or "rotating"
    BLOOMREDIS_CAPACITY = 1_000_000
    BLOOMREDIS_ERROR_RATE = 1e-6
    BLOOMREDIS_OPTIONS = {}  # more parameters of the filter, as {"window": 86_400} of a rotating one
    BLOOMREDIS_FINGERPRINT = "scrapy"  # or "scrapy-redis", for a set of its fingerprints that was loaded
    BLOOMREDIS_LEASE = 30.0  # seconds until the pages of a spider that died are free
    BLOOMREDIS_ON_ERROR = "close"  # or "new": go on, and take each request for a new one
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from typing import Any, Final, Self
from weakref import WeakKeyDictionary

import bloomredis.asyncio
from bloomredis.contrib import missing

try:
    from scrapy import Request, signals
    from scrapy.dupefilters import BaseDupeFilter
    from scrapy.exceptions import CloseSpider, IgnoreRequest
    from scrapy.utils.defer import deferred_from_coro
except ImportError as error:
    raise missing("scrapy", "Scrapy") from error

__all__ = ["BatchDedupe", "ClaimWhileDownloading", "DupeFilter"]

UNAVAILABLE: Final = "bloomredis_unavailable"
"""The reason with which a crawl ends whose filter does not answer."""

KINDS: Final = {"plain": "BloomFilter", "scaling": "ScalingBloomFilter", "rotating": "RotatingBloomFilter"}
LARGEST: Final = 1000
"""Requests that travel in one batch."""
PAUSE: Final = 0.25
"""Seconds until a page that another spider downloads is asked for again."""

_log = logging.getLogger("bloomredis")


def _filter(crawler: Any, half: Any, setting: str, default: str) -> Any:
    """Return the filter that the settings describe, of one half of the library; nothing is sent."""
    settings = crawler.settings
    kind = settings.get("BLOOMREDIS_KIND", "scaling")
    if kind not in KINDS:
        raise ValueError(f"BLOOMREDIS_KIND must be one of {', '.join(KINDS)}, not {kind!r}")
    return getattr(half, KINDS[kind]).from_url(
        settings.get("BLOOMREDIS_URL", "redis://localhost"),
        settings.get(setting, default) % {"spider": crawler.spidercls.name},
        capacity=settings.getint("BLOOMREDIS_CAPACITY", 1_000_000),
        error_rate=settings.getfloat("BLOOMREDIS_ERROR_RATE", 1e-6),
        **settings.getdict("BLOOMREDIS_OPTIONS"),
    )


def _fingerprints(crawler: Any) -> Callable[[Any], str]:
    """Return a function that makes an item of a request: its fingerprint in hexadecimal."""
    kind = crawler.settings.get("BLOOMREDIS_FINGERPRINT", "scrapy")
    if kind == "scrapy":
        return lambda request: str(crawler.request_fingerprinter.fingerprint(request).hex())
    if kind != "scrapy-redis":
        raise ValueError(f"BLOOMREDIS_FINGERPRINT must be 'scrapy' or 'scrapy-redis', not {kind!r}")
    from scrapy_redis.dupefilter import RFPDupeFilter  # noqa: PLC0415 - few have both

    made: Callable[[Any], str] = RFPDupeFilter(None, "").request_fingerprint
    return made


class _Failures:
    """The end of a crawl whose filter does not answer, with a reason of its own."""

    def __init__(self, crawler: Any) -> None:
        self._crawler = crawler
        self._policy = crawler.settings.get("BLOOMREDIS_ON_ERROR", "close")
        if self._policy not in {"close", "new"}:
            raise ValueError(f"BLOOMREDIS_ON_ERROR must be 'close' or 'new', not {self._policy!r}")
        self.is_closing = False
        crawler.signals.connect(self._idle, signals.spider_idle)

    def meet(self, error: Exception) -> None:
        """Close the spider, unless the settings say to go on."""
        self._crawler.stats.inc_value("bloomredis/errors")
        if self._policy == "new" or self.is_closing:
            return
        self.is_closing = True
        _log.error("the spider is closed, since its filter does not answer: %s", error)
        deferred_from_coro(self._crawler.engine.close_spider_async(reason=UNAVAILABLE))

    def _idle(self) -> None:
        """Give the reason also where the spider is idle before it is closed."""
        if self.is_closing:
            raise CloseSpider(UNAVAILABLE)


class DupeFilter(BaseDupeFilter):
    """A dupefilter that all spiders with the same filter share; also for the scheduler of scrapy-redis.

    Exactly one of them makes a request, at the cost of one round trip.  If the server does not answer, the
    spider is closed, and a queue that outlasts it keeps the request.
    """

    def __init__(self, crawler: Any) -> None:
        self._stats = crawler.stats
        self._item = _fingerprints(crawler)
        self._failures = _Failures(crawler)
        self.seen = _filter(crawler, bloomredis, "BLOOMREDIS_NAME", "%(spider)s:seen")

    @classmethod
    def from_crawler(cls, crawler: Any) -> Self:
        """Return the dupefilter of a crawl."""
        return cls(crawler)

    @classmethod
    def from_spider(cls, spider: Any) -> Self:
        """Return the dupefilter of a spider, as scrapy-redis asks for it."""
        return cls(spider.crawler)

    def request_seen(self, request: Any) -> bool:
        """Mark a request, and return True if one like it was marked before."""
        try:
            return not self.seen.add(self._item(request))
        except bloomredis.BloomError as error:
            self._failures.meet(error)
            return False

    def clear(self) -> None:
        """Forget all requests, of all spiders; scrapy-redis calls it to begin a crawl again."""
        self.seen.clear()

    def log(self, request: Any, spider: Any) -> None:
        """Count a request that was not made."""
        _log.debug("filtered duplicate request: %s", request, extra={"spider": spider})
        self._stats.inc_value("dupefilter/filtered")


class BatchDedupe:
    """Spider middleware that asks for all requests of a callback at once, while the reactor goes on.

    A page with 100 links costs one round trip.  New requests go on with `dont_filter=True`; those that have
    it already are not looked at.
    """

    def __init__(self, crawler: Any) -> None:
        self._stats = crawler.stats
        self._item = _fingerprints(crawler)
        self._failures = _Failures(crawler)
        self.seen = _filter(crawler, bloomredis.asyncio, "BLOOMREDIS_NAME", "%(spider)s:seen")

    @classmethod
    def from_crawler(cls, crawler: Any) -> Self:
        """Return the middleware of a crawl."""
        return cls(crawler)

    async def process_start(self, start: AsyncIterator[Any]) -> AsyncIterator[Any]:
        """Yield the new ones of the requests that a crawl starts with, each when it comes."""
        async for each in start:
            for kept in await self._new([each]) if _is_asked_for(each) else [each]:
                yield kept

    async def process_spider_output(self, response: Any, result: AsyncIterator[Any]) -> AsyncIterator[Any]:  # noqa: ARG002 - as Scrapy calls it
        """Yield the items of a callback, and the new ones of its requests."""
        batch: list[Any] = []
        async for each in result:
            if not _is_asked_for(each):
                yield each
                continue
            batch.append(each)
            if len(batch) == LARGEST:
                for kept in await self._new(batch):
                    yield kept
                batch = []
        if batch:
            for kept in await self._new(batch):
                yield kept

    async def _new(self, requests: list[Any]) -> list[Any]:
        """Mark requests, and return those that are new; all of them if the server does not answer."""
        try:
            answers = await self.seen.add_many(map(self._item, requests))
        except bloomredis.BloomError as error:
            self._failures.meet(error)
            answers = [True] * len(requests)
        self._stats.inc_value("dupefilter/filtered", answers.count(False))
        pairs = zip(requests, answers, strict=True)
        return [request.replace(dont_filter=True) for request, is_new in pairs if is_new]


def _is_asked_for(each: object) -> bool:
    return isinstance(each, Request) and not each.dont_filter


class ClaimWhileDownloading:
    """Downloader middleware that marks a page when it is downloaded, and claims it until then.

    Its place is 620 in DOWNLOADER_MIDDLEWARES, between cookies and redirects.  A page that is done is
    ignored (`IgnoreRequest`).  One that another spider downloads goes to the end of the queue, until it is
    done or that spider's lease is over.  A redirect, or an answer for which Scrapy asks again, gives the
    page back.
    A request with `meta={"bloomredis_claim": False}` is let through.
    """

    def __init__(self, crawler: Any) -> None:
        settings = crawler.settings
        self._stats = crawler.stats
        self._item = _fingerprints(crawler)
        self._failures = _Failures(crawler)
        self._lease = settings.getfloat("BLOOMREDIS_LEASE", 30.0)
        self._again = {int(code) for code in settings.getlist("RETRY_HTTP_CODES")}
        self._claims: WeakKeyDictionary[Any, Any] = WeakKeyDictionary()
        self.fetched = _filter(crawler, bloomredis.asyncio, "BLOOMREDIS_CLAIMS_NAME", "%(spider)s:fetched")

    @classmethod
    def from_crawler(cls, crawler: Any) -> Self:
        """Return the middleware of a crawl."""
        return cls(crawler)

    async def process_request(self, request: Any) -> Any:
        """Claim a page; return the request to be made later if the page is busy."""
        if request.meta.get("bloomredis_claim") is False:
            return None
        try:
            claim = await self.fetched.claim(self._item(request), self._lease, renew=True)
        except bloomredis.BloomError as error:
            self._failures.meet(error)
            if self._failures.is_closing:
                raise IgnoreRequest(UNAVAILABLE) from error
            return None
        self._stats.inc_value(f"bloomredis/{claim.state}")
        if claim:
            self._claims[request] = claim
            return None
        if claim.state == "done":
            raise IgnoreRequest("the page was fetched before")
        await asyncio.sleep(min(claim.remaining, PAUSE))
        return request.replace(dont_filter=True, priority=request.priority - 1)

    async def process_response(self, request: Any, response: Any) -> Any:
        """Mark a page as fetched, or give it back if it is to be asked for again."""
        if claim := self._claims.pop(request, None):
            is_final = response.status not in self._again and not 300 <= response.status < 400
            await self._end(claim.commit if is_final else claim.release)
        return response

    async def process_exception(self, request: Any, exception: Exception) -> None:  # noqa: ARG002 - as Scrapy calls it
        """Give a page back whose download failed."""
        if claim := self._claims.pop(request, None):
            await self._end(claim.release)

    async def _end(self, call: Callable[[], Any]) -> None:
        """End a claim.  The response is there, so one that was lost changes nothing for this spider."""
        try:
            await call()
        except bloomredis.ClaimLostError:
            self._stats.inc_value("bloomredis/lost")
        except bloomredis.BloomError as error:
            self._failures.meet(error)
