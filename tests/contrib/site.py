"""A web site with many links between its pages, which notes the spider of each fetch."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import NamedTuple, Protocol, TypeVar


class Answer(NamedTuple):
    """An answer of a site."""

    body: bytes = b""
    status: int = 200
    kind: str = "text/html"
    location: str = ""


class Answering(Protocol):
    """A site."""

    url: str

    def answer(self, path: str, spider: str) -> Answer:
        """Answer a spider's request."""


class Site:
    """Pages 0 to `size` - 1, each with links to other pages.

    Each spider starts with the page of its number, and gets it once all spiders have requested theirs.
    """

    def __init__(self, size: int, links: int, spiders: int, seed: int = 1) -> None:
        chosen = random.Random(seed)
        self.links = {page: chosen.sample(range(size), links) for page in range(size)}
        self.fetches: list[tuple[int, str]] = []
        self.url = ""
        self._begun = threading.Barrier(spiders, timeout=240)
        self._unbegun = set(range(spiders))

    def answer(self, path: str, spider: str) -> Answer:
        """Return the page of that path, which is a number, for a spider."""
        page = int(path[1:])
        self.fetches.append((page, spider))
        if page in self._unbegun:
            self._unbegun.discard(page)
            self._begun.wait()
        return Answer("".join(f'<a href="/{link}">{link}</a>\n' for link in self.links[page]).encode())


SiteT = TypeVar("SiteT", bound=Answering)


@contextmanager
def serving(site: SiteT) -> Iterator[SiteT]:
    """Serve a site from threads of this process."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        wbufsize = -1  # one packet a page

        def do_GET(self) -> None:
            answer = site.answer(self.path, str(self.headers["User-Agent"]))
            self.send_response(answer.status)
            for header in (
                ("Content-Type", answer.kind),
                ("Content-Length", str(len(answer.body))),
                ("Location", answer.location),
            ):
                self.send_header(*header)
            self.end_headers()
            self.wfile.write(answer.body)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - as it is in the base class
            """Write nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        site.url = f"http://127.0.0.1:{server.server_port}"
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield site
        finally:
            server.shutdown()
            thread.join()
