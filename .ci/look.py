"""A check of docs/_build: its search, and pages in a browser, at the widths of a desktop and of a phone.

Each word of docs/searches.toml leads to one page, which the search shows first.  Each page that is looked at
has to load with its pictures, have a text for each picture, and not scroll sideways.  One page of the same
origin shows the pages in frames, measures them and asks the search.  Without chromium only the search's index
is checked.
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
import tomllib
from html import unescape
from pathlib import Path
from typing import Final

DOCS: Final = Path(__file__).parents[1] / "docs"
BUILT: Final = Path(sys.argv[1]) if len(sys.argv) > 1 else DOCS / "_build"
PAGES: Final = (
    "index.html",
    "speed.html",
    "reference.html",
    "reference/items.html",
    "claims.html",
    "guarantees.html",
)
WORDS: Final = {
    word: f"{page}.html"
    for page, words in tomllib.loads((DOCS / "searches.toml").read_text("utf-8")).items()
    for word in words
}
WIDTHS: Final = (1280, 390)
MEASURE: Final = """
const found = [];
const frames = [...document.querySelectorAll("iframe")];
const first = (search, word) => {
  const results = search._performSearch(...search._parseQuery(word));
  return results.length ? results.at(-1)[5].replace(/md$/, "html") : "nothing";
};
const measure = () => {
  const search = frames[0].contentWindow.eval("Search");
  if (!search.hasIndex()) return setTimeout(measure, 100);
  const firsts = Object.fromEntries(WORDS.map(word => [word, first(search, word)]));
  for (const frame of frames.slice(1)) {
    const root = frame.contentDocument.documentElement, images = [...frame.contentDocument.images];
    found.push({
      page: frame.dataset.page, width: +frame.width, title: frame.contentDocument.title,
      scrolls: root.scrollWidth > +frame.width, height: root.scrollHeight,
      dark: images.filter(image => !image.alt || !image.complete || !image.naturalWidth).length,
    });
  }
  document.body.textContent = JSON.stringify({found, firsts});
};
addEventListener("load", () => setTimeout(measure, 500));  // after that of all frames
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
        frames = f'<iframe width="1280" height="800" src="/search.html?q=filter"></iframe>{frames}'
        script = f"const WORDS = {json.dumps(list(WORDS))};{MEASURE}"
        self.wfile.write(f"<!doctype html><body>{frames}<script>{script}</script></body>".encode())

    def log_message(self, *_: object) -> None:
        """Log nothing."""


def astray() -> list[str]:
    """Return the words whose entry in the built index does not lead to their page alone."""
    text = (BUILT / "searchindex.js").read_text("utf-8")
    index = json.loads(text.removeprefix("Search.setIndex(").removesuffix(")"))
    places = index["docnames"]
    return [
        word
        for word, page in WORDS.items()
        if [f"{places[each]}.html" for each, _, is_main in index["indexentries"].get(word, []) if is_main]
        != [page]
    ]


def looked(browser: str, port: int) -> tuple[list[dict[str, object]], dict[str, str]]:
    """Return the measurements of the browser, and the first page that its search shows for each word."""
    with tempfile.TemporaryDirectory() as profile:
        options = ("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run")
        quiet = ("--disable-background-networking", "--disable-component-update", "--disable-sync")
        time = ("--virtual-time-budget=20000", f"--user-data-dir={profile}", "--dump-dom")
        command = [browser, *options, *quiet, *time, f"http://127.0.0.1:{port}/look"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    body = re.search(r"<body>(\{.*\})</body>", done.stdout, re.DOTALL)
    if body is None:
        raise SystemExit(f"the browser printed no measurements: {done.stdout[:500]}")
    measured = json.loads(unescape(body[1]))
    return measured["found"], measured["firsts"]


def main() -> int:
    """Check the index, measure the pages, and print the words and pages with a fault."""
    if lost := astray():
        print(f"the search does not lead to the page of docs/searches.toml for: {', '.join(lost)}")
        return 1
    browser = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if browser is None:
        print("chromium is not installed: the pages were not checked")
        return 0
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Site, directory=str(BUILT)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    found, firsts = looked(browser, server.server_address[1])
    server.shutdown()
    wrong = [one for one in found if one["scrolls"] or one["dark"] or "bloomredis" not in str(one["title"])]
    for each in wrong:
        print(f"{each['page']} at {each['width']} pixels: {each}")
    others = {word: page for word, page in firsts.items() if page != WORDS[word]}
    for word, page in others.items():
        print(f"the search for {word!r} shows {page} first, not {WORDS[word]}")
    looked_at = f"{len(found)} pages and {len(firsts)} searches in {Path(browser).name}"
    print(f"checked {looked_at}: {len(wrong) + len(others)} have a fault")
    return int(bool(wrong or others) or len(found) != len(PAGES) * len(WIDTHS))


if __name__ == "__main__":
    sys.exit(main())
