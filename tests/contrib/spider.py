"""A spider that follows each link, in a process of its own."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

from scrapy import Request, Spider
from scrapy.crawler import CrawlerProcess

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
    """Start a crawl with settings of Scrapy."""
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


def main() -> None:
    """Crawl, and print the stats."""
    process = CrawlerProcess(json.loads(sys.argv[1]))
    crawler = process.create_crawler(Links)
    process.crawl(crawler)
    process.start()
    print(json.dumps(crawler.stats.get_stats(), default=str))  # noqa: T201 - the answer


if __name__ == "__main__":
    main()
