"""Generator of the synchronous half of the drivers: `make generate`.

A source `aio_NAME.py` is written by hand; `NAME.py` beside it is made from it, without `async` and `await`,
and with other names.  `NAMES` lists the sources and their names; a name that does not occur is an error.
Where the halves differ, comments in the source mark the lines::

    # asyncio: (a reason may follow)
    lines of the asyncio half alone
    # sync: a line of the synchronous half alone, indented as the comment above
    # both.
"""

from __future__ import annotations

import io
import re
import subprocess
import sys
import tokenize
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from tools import describe
from tools.describe import DRIVERS

NAMES: Final[dict[str, dict[str, str]]] = {
    "aio_claiming.py": {
        "AsyncDriven": "Driven",
        "Claiming": "Claim",
        "aio_claims": "claims",
        "awaiting": "claims",
    },
    "aio_claims.py": {
        "AsyncDriven": "Driven",
        "__aenter__": "__enter__",
        "__aexit__": "__exit__",
        "renew_in_task": "renew_in_thread",
    },
    "aio_deduping.py": {"AsyncDriven": "Driven", "AsyncIterator": "Iterator", "aclosing": "closing"},
    "aio_filters.py": {
        "AsyncClient": "SyncClient",
        "__aenter__": "__enter__",
        "__aexit__": "__exit__",
        "aio_claiming": "claiming",
        "aio_deduping": "deduping",
        "aio_lifecycle": "lifecycle",
        "aio_running": "running",
        "async_batches": "batches",
    },
    "aio_kinds.py": {
        "AsyncClient": "SyncClient",
        "aio_filters": "filters",
        "aio_lifecycle": "lifecycle",
        "aio_queueing": "queueing",
    },
    "aio_lifecycle.py": {
        "AsyncClient": "SyncClient",
        "AsyncDriven": "Driven",
        "AsyncIterator": "Iterator",
        "aio_running": "running",
    },
    "connections/aio_direct.py": {
        "AsyncClient": "SyncClient",
        "AsyncDirectClient": "DirectClient",
        "AsyncPooled": "Pooled",
        "AsyncTransport": "SyncTransport",
    },
    "aio_queueing.py": {"AsyncDriven": "Driven"},
    "aio_running.py": {
        "AsyncDirectClient": "DirectClient",
        "AsyncTransport": "SyncTransport",
        "aio": "sync",
        "aio_direct": "direct",
        "anext": "next",
        "asyncio": "time",
        "close_free_async": "close_free",
    },
}
"""For each source the names to replace."""

HEADER: Final = "# Made from {} by `make generate`: change that file instead.\n"
ALTERNATIVE: Final = re.compile(r" \| AsyncIterable\[\w+\]")
"""A type that the synchronous half does not take."""
WRAPPED: Final = re.compile(r"(?:Awaitable\[|Coroutine\[Any, Any, )")
"""The beginning of a type whose last argument is what the synchronous half returns."""
WORDS: Final = re.compile(r"\basync (?=with |for |def )|\bawait (?=\w+[.(])")
"""The words to drop from the examples in docstrings."""


class GenerationError(Exception):
    """A source that the tables do not fit."""


def of_sync(lines: list[str]) -> Iterator[str]:
    """Yield the lines of the synchronous half, of those that the comments mark and of all others."""
    indent: str | None = None  # of the `# asyncio:` that is open
    for line in lines:
        before, mark, after = line.partition("# ")
        word = after.partition(" ")[0].strip() if mark and not before.strip() else ""
        if word in {"asyncio:", "sync:", "both."} and (indent is None) != (word == "asyncio:"):
            raise GenerationError(f"a line `# {word}` is out of place")
        if word == "asyncio:":
            indent = before
        elif word == "both.":
            indent = None
        elif word == "sync:":
            yield f"{indent}{after.removeprefix('sync: ')}"
        elif indent is None:
            yield line
    if indent is not None:
        raise GenerationError("a line `# asyncio:` has no `# both.`")


def unwrapped(text: str) -> str:
    """Return source text with `Awaitable[X]` and `Coroutine[Any, Any, X]` as `X`, without async iterables."""
    text = ALTERNATIVE.sub("", text)
    while found := WRAPPED.search(text):
        end, depth = found.end(), 1
        while depth:
            depth += {"[": 1, "]": -1}.get(text[end], 0)
            end += 1
        text = text[: found.start()] + text[found.end() : end - 1] + text[end:]
    return text


def renamed(text: str, names: dict[str, str]) -> str:
    """Return source text without `async` and `await`, and with other names."""
    lines, unused, edits = text.splitlines(keepends=True), set(names), []
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        new = token.string
        if token.type == tokenize.NAME and new in {"async", "await"}:
            edits.append((token.start, (token.end[0], token.end[1] + 1), ""))
        elif token.type == tokenize.NAME and new in names:
            unused.discard(new)
            edits.append((token.start, token.end, names[new]))
        elif token.type == tokenize.STRING and WORDS.search(new):
            edits.append((token.start, token.end, WORDS.sub("", new)))
    if unused:
        raise GenerationError(f"these names do not occur: {', '.join(sorted(unused))}")
    for (row, start), (last, end), new in reversed(edits):
        lines[row - 1 : last] = [lines[row - 1][:start] + new + lines[last - 1][end:]]
    return "".join(lines)


def tidied(text: str, path: Path) -> str:
    """Return source text without unused imports, sorted and formatted as all other files."""
    for command in (("check", "--quiet", "--fix-only", "--select", "F401,I"), ("format",)):
        full = [sys.executable, "-m", "ruff", *command, "--stdin-filename", str(path), "-"]
        text = subprocess.run(full, input=text, capture_output=True, text=True, check=True).stdout
    return text


def generated(name: str, text: str) -> str:
    """Return the text of the file that is made from the text of a source."""
    try:
        text = renamed(unwrapped("".join(of_sync(text.splitlines(keepends=True)))), NAMES[name])
    except GenerationError as error:
        raise SystemExit(f"{name}: {error}") from None
    return tidied(HEADER.format(Path(name).name) + text, product_of(name))


def product_of(name: str) -> Path:
    """Return the path of the file that is made from a source."""
    source = DRIVERS / name
    return source.with_name(source.name.removeprefix("aio_"))


def main() -> None:
    """Write the files that are out of date; with `--check`, name them and fail instead."""
    sources = {name: (DRIVERS / name).read_text("utf-8") for name in NAMES}
    filled = {name: describe.described(name, (DRIVERS / name).read_text("utf-8")) for name in describe.TEXTS}
    sources[describe.KINDS] = filled[describe.KINDS]
    files = {product_of(name): generated(name, text) for name, text in sources.items()}
    files |= {DRIVERS / name: text for name, text in filled.items()}
    stale = [
        (path, text) for path, text in files.items() if not path.exists() or path.read_text("utf-8") != text
    ]
    if "--check" in sys.argv and stale:
        raise SystemExit("run `make generate`: out of date: " + ", ".join(path.name for path, _ in stale))
    for path, text in stale:
        path.write_text(text, "utf-8")


if __name__ == "__main__":
    main()
