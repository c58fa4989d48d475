"""A check of pages of docs/_build in a browser, at the widths of a desktop and of a phone.

Each page has to load with its pictures, have a text for each picture, and not scroll sideways.  One page of
the same origin shows the pages in frames and measures them.  Without chromium the check is skipped.
"""

from __future__ import annotations

import functools
import http.server
import json
import re
import shutil
import subprocess
import sys
import tempfile
import threading
from html import unescape
from pathlib import Path
from typing import Final

BUILT: Final = Path(__file__).parents[1] / "docs" / "_build"
PAGES: Final = ("index.html", "speed.html", "reference.html", "reference/bloom-filter.html", "claims.html")
WIDTHS: Final = (1280, 390)
MEASURE: Final = """
const found = [];
const frames = [...document.querySelectorAll("iframe")];
Promise.all(frames.map(frame => new Promise(done => frame.onload = done))).then(() => setTimeout(() => {
  for (const frame of frames) {
    const root = frame.contentDocument.documentElement, images = [...frame.contentDocument.images];
    found.push({
      page: frame.dataset.page, width: +frame.width, title: frame.contentDocument.title,
      scrolls: root.scrollWidth > +frame.width, height: root.scrollHeight,
      dark: images.filter(image => !image.alt || !image.complete || !image.naturalWidth).length,
    });
  }
  document.body.textContent = JSON.stringify(found);
}, 500));
"""


class Site(http.server.SimpleHTTPRequestHandler):
    """Request handler that serves the pages, and at `/look` the page that measures them."""

    def do_GET(self) -> None:
        """Answer a request."""
        if self.path != "/look":
            super().do_GET()
            return
        frames = "".join(
            f'<iframe width="{width}" height="800" data-page="{page}" src="/{page}"></iframe>'
            for width in WIDTHS
            for page in PAGES
        )
        self.send_response(200)
        self.send_header("Content-Type", "text/html; charset=utf-8")
        self.end_headers()
        self.wfile.write(f"<!doctype html><body>{frames}<script>{MEASURE}</script></body>".encode())

    def log_message(self, *_: object) -> None:
        """Log nothing."""


def looked(browser: str, port: int) -> list[dict[str, object]]:
    """Return the measurements of the browser."""
    with tempfile.TemporaryDirectory() as profile:
        options = ("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run")
        quiet = ("--disable-background-networking", "--disable-component-update", "--disable-sync")
        time = ("--virtual-time-budget=20000", f"--user-data-dir={profile}", "--dump-dom")
        command = [browser, *options, *quiet, *time, f"http://127.0.0.1:{port}/look"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    body = re.search(r"<body>(\[.*\])</body>", done.stdout, re.DOTALL)
    if body is None:
        raise SystemExit(f"the browser printed no measurements: {done.stdout[:500]}")
    found: list[dict[str, object]] = json.loads(unescape(body[1]))
    return found


def main() -> int:
    """Measure the pages, and print those with a fault."""
    browser = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if browser is None:
        print("chromium is not installed: the pages were not checked")
        return 0
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Site, directory=str(BUILT)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    found = looked(browser, server.server_address[1])
    server.shutdown()
    wrong = [one for one in found if one["scrolls"] or one["dark"] or "bloomredis" not in str(one["title"])]
    for each in wrong:
        print(f"{each['page']} at {each['width']} pixels: {each}")
    print(f"checked {len(found)} pages in {Path(browser).name}: {len(wrong)} have a fault")
    return int(bool(wrong) or len(found) != len(PAGES) * len(WIDTHS))


if __name__ == "__main__":
    sys.exit(main())
