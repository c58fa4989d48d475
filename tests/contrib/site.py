"""A web site with many links between its pages, which notes the spider of each fetch."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


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

    def fetch(self, page: int, spider: str) -> bytes:
        """Return the page of that number, for a spider."""
        self.fetches.append((page, spider))
        if page in self._unbegun:
            self._unbegun.discard(page)
            self._begun.wait()
        return "".join(f'<a href="/{link}">{link}</a>\n' for link in self.links[page]).encode()


@contextmanager
def serving(site: Site) -> Iterator[Site]:
    """Serve a site from threads of this process."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        wbufsize = -1  # one packet a page

        def do_GET(self) -> None:
            body = site.fetch(int(self.path[1:]), str(self.headers["User-Agent"]))
            self.send_response(200)
            self.send_header("Content-Type", "text/html")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

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
