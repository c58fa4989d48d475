"""Writes the drawings of the pages: `python -m tools.pictures`.

docs/claim.svg shows how a claim lives, as one bar of time for each way in which it can end.  Like the charts,
it is one column, readable on a phone, and on light and dark pages.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final, NamedTuple
from xml.sax.saxutils import escape

DOCS: Final = Path(__file__).parents[1] / "docs"
_INK: Final = "#737d88"
_COLOURS: Final = {"free": "none", "held": "#2f7de1", "held by another": "#8a63b8", "done": "#2e9e5b"}
_WIDTH, _LEFT, _BAR, _ROW, _STEP = 480, 4, 26, 96, 47.2


class Life(NamedTuple):
    """One way in which a claim lives.

    :ivar states: the item's states, each with its share of ten.
    :ivar events: what happens, by the time from 0 to 10.
    """

    title: str
    states: tuple[tuple[str, int], ...]
    events: Mapping[float, str]


LIVES: Final = (
    Life(
        "The work takes long",
        (("free", 2), ("held", 5), ("done", 3)),
        {2: "claim", 3.6: "renewed", 5.2: "renewed", 7: "commit"},
    ),
    Life(
        "The worker dies",
        (("free", 2), ("held", 3), ("free", 1), ("held by another", 2), ("done", 2)),
        {2: "claim", 3.5: "dies", 5: "lease ends", 8: "commit"},
    ),
    Life(
        "The work raises an exception",
        (("free", 2), ("held", 3), ("free", 5)),
        {2: "claim", 5: "released at once"},
    ),
    Life(
        "The work outlives its lease, with renew=False",
        (("free", 2), ("held", 2), ("held by another", 4), ("done", 2)),
        {2: "claim", 4: "lease ends", 5.7: "ClaimLostError", 8: "commit"},
    ),
)
TITLE: Final = "How a claim lives: claimed, renewed, committed, released, expired"


def claim() -> Iterator[str]:
    """Yield the lines of docs/claim.svg."""
    yield (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_ROW * len(LIVES)}" role="img" '
        f'font-family="system-ui, sans-serif" font-size="14" fill="{_INK}">'
    )
    yield f"<title>{escape(TITLE)}</title>"
    for row, life in enumerate(LIVES):
        top = row * _ROW
        yield f'<text x="{_LEFT}" y="{top + 18}" font-weight="bold">{escape(life.title)}</text>'
        at = 0
        for state, length in life.states:
            yield from _bar(at, length, top + 28, state)
            at += length
        for time, event in life.events.items():
            x = _LEFT + time * _STEP
            yield f'<path d="M{x:.0f} {top + 28 + _BAR} v8" stroke="{_INK}" stroke-width="2"/>'
            yield f'<text x="{x - 3:.0f}" y="{top + 76}">{escape(event)}</text>'
    yield "</svg>"


def _bar(at: int, length: int, top: int, state: str) -> Iterator[str]:
    x, width = _LEFT + at * _STEP, length * _STEP
    border, ink = (f' stroke="{_INK}"', _INK) if state == "free" else ("", "#fff")
    size = f'width="{width:.0f}" height="{_BAR}"'
    yield f'<rect x="{x:.0f}" y="{top}" {size} fill="{_COLOURS[state]}"{border}/>'
    short = state if len(state) * 8 < width else state.split(maxsplit=1)[0]
    yield f'<text x="{x + width / 2:.0f}" y="{top + 18}" text-anchor="middle" fill="{ink}">{short}</text>'


def main() -> None:
    """Write the drawings."""
    (DOCS / "claim.svg").write_text("\n".join(claim()) + "\n", "utf-8")


if __name__ == "__main__":
    main()
