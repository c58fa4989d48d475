"""The reaction of a Scrapy crawl to a filter that does not answer: waiting, unmarked requests, the end."""

from __future__ import annotations

import asyncio
import logging
import pickle
import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any, Final, TypeVar
from urllib.parse import urlsplit
from weakref import WeakSet

from scrapy import signals
from scrapy.exceptions import CloseSpider
from scrapy.spiders import CSVFeedSpider, SitemapSpider, XMLFeedSpider
from scrapy.utils.defer import deferred_from_coro
from scrapy.utils.job import job_dir
from scrapy.utils.request import request_from_dict

import bloomredis
from bloomredis.contrib._outages import PATIENCE, PAUSE

T = TypeVar("T")

UNAVAILABLE: Final = "bloomredis_unavailable"
"""The finish reason of a crawl that ends because its filter does not answer."""

_TOKEN: Final = "bloomredis_token"  # noqa: S105 - no password
"""The key in a request's meta for the token of a call whose reply was lost, until the resumed crawl asks."""

_log = logging.getLogger("bloomredis")


def policy_of(settings: Any) -> str:
    """Return the reaction of a crawl to a filter that stays away: "close" or "new"."""
    policy = settings.get("BLOOMREDIS_ON_ERROR", "close")
    if policy not in {"close", "new"}:
        raise ValueError(f"BLOOMREDIS_ON_ERROR must be 'close' or 'new', not {policy!r}")
    return str(policy)


def is_page(crawler: Any, request: Any) -> bool:
    """Return whether a request is for a page, which is fetched once, and not for a list of pages.

    The spider says it by its method `is_page`, if it has one.  By default lists are `robots.txt`, and the
    sitemaps and feeds of Scrapy's own spiders.
    """
    spider = crawler.spider
    if hasattr(spider, "is_page"):
        return bool(spider.is_page(request))
    callback = getattr(request.callback, "__name__", None)
    is_sitemap = isinstance(spider, SitemapSpider) and callback == "_parse_sitemap"
    is_feed = isinstance(spider, XMLFeedSpider | CSVFeedSpider) and callback in {None, "parse", "_parse"}
    return not (is_sitemap or is_feed or urlsplit(request.url).path == "/robots.txt")


class Failures:
    """The errors of a crawl's filter: the crawl waits, and then ends or continues without the filter."""

    def __init__(self, crawler: Any) -> None:
        self._crawler = crawler
        self.goes_on = policy_of(crawler.settings) == "new"
        self._patience = crawler.settings.getfloat("BLOOMREDIS_PATIENCE", PATIENCE)
        if self._patience < 0:
            raise ValueError(f"BLOOMREDIS_PATIENCE must be 0 seconds or more, not {self._patience}")
        self._since: float | None = None  # when the filter stopped answering
        self._latest = 0.0  # when a call failed last
        self._is_met = False
        self.is_closing = False
        crawler.signals.connect(self._idle, signals.spider_idle)

    @property
    def is_away(self) -> bool:
        """True from the first error to the next answer."""
        return self._since is not None

    def succeed(self, begun: float) -> None:
        """Record that the filter answered a call, unless another call failed after this one began.

        :param begun: when the call began, as `time.monotonic` says it.
        """
        if begun > self._latest:
            self._since = None
            self._is_met = False

    def pause(self, error: bloomredis.BloomError) -> float | None:
        """Return the seconds until the failed call is retried; None to give up, which may close the spider.

        All calls share one waiting time, which begins with the first error.
        """
        self._latest = now = time.monotonic()
        if self._since is None:
            self._since = now
            if error.transient and self._patience:
                _log.warning("the crawl waits for its filter up to %g s: %s", self._patience, error)
        if self.is_closing or now - self._since >= self._patience or not error.transient:
            self._give_up(error)
            return None
        return PAUSE

    async def patiently(self, call: Callable[[], Awaitable[T]]) -> T | None:
        """Return the result of a call, which is retried while the filter does not answer; None to give up.

        :raises ClaimLostError: the call says so.
        """
        while True:
            begun = time.monotonic()
            try:
                found = await call()
            except bloomredis.ClaimLostError:
                self.succeed(begun)
                raise
            except bloomredis.BloomError as error:
                if (pause := self.pause(error)) is None:
                    return None
                await asyncio.sleep(pause)
            else:
                self.succeed(begun)
                return found

    def _give_up(self, error: Exception) -> None:
        """Close the spider, unless the settings tell it to continue."""
        self._crawler.stats.inc_value("bloomredis/errors")
        if self._is_met or self.is_closing:
            return
        self._is_met = True
        if self.goes_on:
            _log.warning("requests count as new until the filter answers: %s", error)
            return
        self.is_closing = True
        _log.error("the spider is closed because its filter does not answer: %s", error)
        deferred_from_coro(self._crawler.engine.close_spider_async(reason=UNAVAILABLE))

    def _idle(self) -> None:
        """Give the reason also if the spider becomes idle before it is closed."""
        if self.is_closing:
            raise CloseSpider(UNAVAILABLE)


class Aside:
    """Requests that got no answer from the filter, in a file in JOBDIR for the resumed crawl."""

    def __init__(self, crawler: Any, name: str) -> None:
        self._crawler = crawler
        folder = job_dir(crawler.settings)
        self._path = Path(folder, f"bloomredis.{name}") if folder else None

    def put(self, request: Any, token: str | None) -> bool:
        """Store a request; return False if there is no JOBDIR, or if the request cannot be stored.

        :param token: the token of a call whose reply was lost; it may have marked the request.
        """
        if self._path is None:
            return False
        if token is not None:
            request = request.replace(meta={**request.meta, _TOKEN: token})
        try:
            stored = pickle.dumps(request.to_dict(spider=self._crawler.spider))
            _append(self._path, stored)
        except Exception as error:
            _log.warning("%s cannot be stored for the resumed crawl: %s", request, error)
            return False
        return True

    def take(self) -> list[Any]:
        """Return the requests that an earlier run stored, and delete their file.

        A file that cannot be read to its end is kept; its name then ends with ".damaged".
        """
        found: list[Any] = []
        if self._path is None or not self._path.exists():
            return found
        try:
            with self._path.open("rb") as file:
                while file.peek(1):
                    found.append(request_from_dict(pickle.load(file), spider=self._crawler.spider))  # noqa: S301 - Scrapy's own queues in this folder are pickles too
        except Exception as error:
            kept = self._path.with_suffix(f"{self._path.suffix}.damaged")
            _log.error("only the first %d stored requests can be read, see %s: %s", len(found), kept, error)
            self._path.replace(kept)
        else:
            self._path.unlink()
        return found


def _append(path: Path, data: bytes) -> None:
    """Append all of the bytes to a file, or none."""
    with path.open("ab", buffering=0) as file:
        end = file.tell()
        if file.write(data) < len(data):
            file.truncate(end)
            raise OSError(f"{path} cannot be written: the disk is full")


class Memory:
    """The items of this process, for a crawl that continues without its filter; else empty.

    An item takes about 70 bytes, since only its hash is stored.
    """

    def __init__(self, failures: Failures) -> None:
        self._is_used = failures.goes_on
        self._hashes: set[int] = set()

    def add(self, item: str) -> None:
        """Remember an item."""
        if self._is_used:
            self._hashes.add(hash(item))

    def __contains__(self, item: str) -> bool:
        return hash(item) in self._hashes


class Marks:
    """The marks of requests in the filter, and the requests that are still unmarked."""

    def __init__(self, crawler: Any, name: str, item: Callable[[Any], str]) -> None:
        self.item = item
        self.failures = Failures(crawler)
        self.aside = Aside(crawler, name)
        self.passed: dict[str, None] = {}  # items of requests that were made unmarked
        self._marked = Memory(self.failures)
        self._stored: set[str] = set()  # items of stored requests whose answer only their token gives
        self._batches: WeakSet[Batch] = WeakSet()

    def begin(self, batch: Batch) -> None:
        """Record a batch whose items are asked about."""
        self._batches.add(batch)

    def marked(self, items: Sequence[str]) -> None:
        """Record that items of unmarked requests are in the filter now.

        A batch that is being asked about may have heard "new" for one of them before.
        """
        for item in items:
            self.passed.pop(item, None)
            self._marked.add(item)
        for batch in self._batches:
            batch.made.update(items)

    def goes_on(self, request: Any, item: str, is_new: bool | None, token: str | None) -> bool:  # noqa: FBT001 - an answer
        """Return whether a request is to be made.

        Without an answer it is made once in this process.  If the spider is being closed, it is left to the
        resumed crawl, and stays unmarked.

        :param is_new: the answer of the filter; None without an answer.
        :param token: the token of a call without an answer, if there is one.
        """
        if item in self.passed or item in self._stored:
            return False
        if is_new is None:
            if item in self._marked:
                return False
            if not self.failures.is_closing:
                self.passed[item] = None
                return True
            if not self.aside.put(request, token):
                return True
            if token is not None:
                self._stored.add(item)
            return False
        if is_new:
            self._marked.add(item)
        return is_new


class Batch:
    """Requests that the filter is asked about together, with the answers so far."""

    def __init__(self, marks: Marks, requests: Sequence[Any]) -> None:
        self._marks = marks
        self._requests = requests
        self._items = [marks.item(request) for request in requests]
        self._tokens: list[str | None] = [request.meta.pop(_TOKEN, None) for request in requests]
        self._answers: list[bool] = []
        self._earlier: list[str] = []  # unmarked items in the last call
        self._begun = 0.0  # when the last call began
        self.made: set[str] = set()  # items that were made unmarked, and marked by a batch beside this one
        self.is_in_doubt = False
        """True if a call without an outcome may have marked the items that have no answer."""
        marks.begin(self)

    @property
    def has_next(self) -> bool:
        """True if items of the batch have no answer yet."""
        return len(self._answers) < len(self._items)

    def _unmarked(self) -> list[str]:
        return [] if self._marks.failures.is_away else list(self._marks.passed)

    def ask(self, seen: Any) -> Any:
        """Call the filter for the next items; return the answers, or an awaitable of them.

        Unmarked items come first once the filter answers again.  An item of an earlier call is asked about
        alone, with its token.
        """
        self._begun = time.monotonic()
        self._earlier = self._unmarked()
        at = len(self._answers)
        if not self._earlier and self._tokens[at] is not None:
            return seen.add(self._items[at], token=self._tokens[at])
        with_token = (i for i in range(at, len(self._items)) if self._tokens[i] is not None)
        return seen.add_many(self._earlier + self._items[at : next(with_token, None)])

    def answered(self, answers: bool | list[bool]) -> None:  # noqa: FBT001 - as `ask` returns it
        """Take the answers of a call."""
        self._marks.failures.succeed(self._begun)
        self._take([answers] if isinstance(answers, bool) else answers)

    def _take(self, answers: list[bool]) -> None:
        """Take the answers to the items of a call, or to the first of them."""
        self._marks.marked(self._earlier[: len(answers)])
        self._answers += answers[len(self._earlier) :]
        del self._earlier[: len(answers)]

    def note(self, error: bloomredis.BloomError) -> None:
        """Take the answers and the tokens of an interrupted call."""
        if isinstance(error, bloomredis.BatchInterruptedError):
            self._take(error.results)
            for at, token in enumerate(error.tokens[len(self._earlier) :], len(self._answers)):
                self._tokens[at] = token or self._tokens[at]

    def failed(self, error: bloomredis.BloomError) -> float | None:
        """Take the error of a call; return the seconds until its retry, or None to give up.

        If nobody can know any more whether an item was new, its request is made rather than lost.
        """
        self.note(error)
        if getattr(error, "final", False):
            self._take([True])
            return 0.0
        return self._marks.failures.pause(error)

    def new(self) -> list[Any]:
        """Return the requests that are to be made."""
        answers = dict(enumerate(self._answers))
        pairs = enumerate(zip(self._requests, self._items, strict=True))
        return [
            request
            for at, (request, item) in pairs
            if item not in self.made and self._marks.goes_on(request, item, answers.get(at), self._tokens[at])
        ]

    def put_aside(self) -> None:
        """Store the requests that are to be made, or have no answer, since the crawl ends."""
        answers = dict(enumerate(self._answers))
        done = {*self._marks.passed, *self.made}  # made before, or stored
        for at, (request, item) in enumerate(zip(self._requests, self._items, strict=True)):
            if item in done or answers.get(at) is False:
                continue
            done.add(item)
            if answers.get(at, self.is_in_doubt and self._tokens[at] is None):
                self._marks.aside.put(request.replace(dont_filter=True), None)
            else:
                self._marks.aside.put(request, self._tokens[at])
