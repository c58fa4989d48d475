"""Spiders in processes of their own."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

from scrapy import Request, Spider
from scrapy.crawler import CrawlerProcess
from scrapy.downloadermiddlewares.retry import get_retry_request
from scrapy.spiders import SitemapSpider

FAST: dict[str, Any] = {
    "CONCURRENT_REQUESTS": 8,
    "CONCURRENT_REQUESTS_PER_DOMAIN": 8,
    "DOWNLOAD_DELAY": 0,
    "LOG_LEVEL": "ERROR",
    "RETRY_ENABLED": False,
    "ROBOTSTXT_OBEY": False,
    "TELNETCONSOLE_ENABLED": False,
}


def start(**settings: Any) -> subprocess.Popen[str]:
    """Start a crawl with settings of Scrapy; the setting SPIDER names another class than `Links`."""
    command = [sys.executable, "-m", "tests.contrib.spider", json.dumps(FAST | settings)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def ended(process: subprocess.Popen[str]) -> dict[str, Any]:
    """Wait for the end of a crawl; return its stats."""
    out, _ = process.communicate(timeout=280)
    assert process.returncode == 0
    stats: dict[str, Any] = json.loads(out)
    return stats


class Links(Spider):
    """Follow each link."""

    name = "links"

    async def start(self) -> Any:
        """Yield the first page."""
        yield Request(self.settings["START_URL"])

    def parse(self, response: Any, **kwargs: Any) -> Iterator[Any]:
        """Yield the links of a page, and its address."""
        yield {"url": response.url}
        yield from response.follow_all(response.css("a"))


class Shop(Spider):
    """Make one request of each kind; the page says which."""

    name = "shop"

    def __init__(self, *, url: str) -> None:
        super().__init__()
        self.start_urls = [f"{url}/start"]

    async def parse(self, response: Any, **kwargs: Any) -> Any:
        """Yield an item with a file, and the requests of each kind."""
        await self.crawler.engine.download_async(response.follow("/price"))
        yield {"file_urls": [response.urljoin("/photo")]}
        for path in ("/product", f"/private/{self.settings['USER_AGENT']}", "/moved", "/flaky"):
            yield response.follow(path, self.end)
        yield response.follow("/product?page=2", self.follow)
        yield response.follow("/empty", self.once_more)
        yield response.follow("/unclaimed", self.end, meta={"bloomredis_claim": False})
        yield response.follow("/claimed", self.end, meta={"bloomredis_claim": True}, dont_filter=True)

    def follow(self, response: Any) -> Iterator[Any]:
        """Yield a request twice that is made each time, though it has the meta of this one."""
        for _ in range(2):
            yield response.follow("/basket", self.end, meta=response.meta, dont_filter=True)

    def once_more(self, response: Any) -> Any:
        """Make the request of an empty page once more."""
        return None if response.text else get_retry_request(response.request, spider=self, reason="empty")

    def end(self, response: Any) -> None:
        """Follow nothing."""


class Map(SitemapSpider):
    """Follow a sitemap, which may be named by robots.txt."""

    name = "map"

    def __init__(self, *, url: str) -> None:
        self.sitemap_urls = [url]
        super().__init__()

    def parse(self, response: Any, **kwargs: Any) -> None:
        """Follow nothing."""


def main() -> None:
    """Crawl, and print the stats."""
    settings = json.loads(sys.argv[1])
    process = CrawlerProcess(settings)
    crawler = process.create_crawler(globals()[settings.get("SPIDER", "Links")])
    process.crawl(crawler, **settings.get("SPIDER_ARGUMENTS", {}))
    process.start()
    print(json.dumps(crawler.stats.get_stats(), default=str))  # noqa: T201 - the answer


if __name__ == "__main__":
    main()
