"""The states of an object's knowledge of its stored filter: each cell of the transition table."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import pytest

from bloomredis.errors import FilterLostError
from bloomredis.stored import planning
from bloomredis.stored.state import base
from bloomredis.stored.state.versioned import Versioned
from tests.support.values import for_each

_ROWS: Final = [
    [cell.strip() for cell in line.split("|")]
    for line in (base.__doc__ or "").splitlines()
    if line.count("|") == 4 and "--|--" not in line
]
STATES: Final = _ROWS[0][1:]
CELLS: Final = [
    (row[0], before, after)
    for row in _ROWS[1:]
    for before, after in zip(STATES, row[1:], strict=True)
    if set(after) - {"-"}
]


class Known(Versioned[Any]):
    """Stored state whose losses run `acts`, one after another; `seen` records the states between."""

    called = "Known"
    current = clear = delete = NotImplemented

    def __init__(self, on_lost: Any = None) -> None:
        super().__init__("seen", ttl=0, on_lost=on_lost or self._lose, wait=None)
        self.acts: list[Callable[[], object]] = []
        self.seen: list[str] = []

    def _lose(self, _: FilterLostError) -> None:
        if self.acts:
            self.acts.pop(0)()

    def _find(self, *, creates: bool) -> Any:
        yield

    def _accept(self, found: Any) -> Any:
        return self.remember(bytes(56), planning.plan_layout("blocked", 1000, 0.01))

    def find_it(self) -> None:
        self._accept(None)

    def meet_a_loss(self) -> None:
        with suppress(FilterLostError, KeyError):
            self._apply_on_lost("it has vanished")

    @property
    def state(self) -> str:
        if self.handle is not None:
            return "open"
        if self._lost is None:
            return "unopened"
        return "reported" if self.in_flight.callback_thread else "lost"

    def look(self) -> None:
        self.seen.append(self.state)


def fail() -> None:
    raise KeyError


def lost_while_emptied(stored: Known) -> None:
    with stored.in_flight.emptying():
        stored.meet_a_loss()


def told(stored: Known) -> None:
    stored.acts.append(stored.look)
    stored.meet_a_loss()


EVENTS: Final[dict[str, Callable[[Known], object]]] = {
    "opened, or its newer state was accepted": Known.find_it,
    "the handle is dropped": Known.forget,
    "reset(): clear() or delete() begins": Known.reset,
    "reopen(): reserve() begins": lambda stored: next(stored.reopen()),
    "a loss; on_lost is a callback": told,
    "a loss while clear() or delete() runs": lost_while_emptied,
}
"""Events and how to cause them, except losses without a callback and the end of a callback."""
LEAVES: Final[dict[str, Callable[[Known], object]]] = {
    "unopened": Known.reset,
    "open": Known.find_it,
    "reported": lambda stored: None,
}
"""Actions of a callback that leave a state behind."""


def reached(state: str, stored: Known) -> Known:
    """Bring a new object into a lasting state."""
    if state == "open":
        stored.find_it()
    elif state == "lost":
        stored.acts.append(fail)
        stored.meet_a_loss()
    assert stored.state == state
    return stored


def outcome(event: str, before: str) -> str:
    """Return the state in which an event leaves an object."""
    if way := re.search('"(.*)"', event):
        stored = reached(before, Known(way[1]))
        stored.meet_a_loss()
        return stored.state
    stored = Known()
    if event.startswith("the callback"):
        end = fail if event.endswith("raises") else stored.look
        stored.acts.append(lambda: (LEAVES[before](stored), end()))
        stored.meet_a_loss()
        return stored.state

    def act() -> None:
        EVENTS[event](stored)
        stored.look()

    if before == "reported":
        stored.acts.append(act)
        stored.meet_a_loss()
    else:
        reached(before, stored)
        act()
    return stored.seen[0]


@for_each(("event", "before", "after"), CELLS)
def test_each_transition(event: str, before: str, after: str) -> None:
    """Each transition is as the table at the top of the module says."""
    assert outcome(event, before) == after


def test_the_table_is_whole() -> None:
    """It has four states and ten events."""
    assert STATES == ["unopened", "open", "lost", "reported"]
    assert len(_ROWS[1:]) == 10
    assert {after for *_, after in CELLS} == set(STATES)


@pytest.mark.parametrize("before", ["lost", "reported"])
def test_what_is_lost_is_not_opened(before: str) -> None:
    """Another thread does not open it either, while the callback runs."""
    stored = reached("lost", Known())
    if before == "reported":
        stored.in_flight.callback_thread = -1  # another thread
    with pytest.raises(FilterLostError):
        next(stored.open())


def test_two_modules_change_the_state() -> None:
    """Other modules call the methods of these two."""

    def assigned(path: Path) -> Iterator[str]:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
                yield node.attr

    stored = Path(base.__file__).parents[1]
    changing = {
        path.name
        for path in stored.glob("**/*.py")
        if {"handle", "_lost", "_changes", "callback_thread", "clears"} & {*assigned(path)}
    }
    assert changing == {"base.py", "versioned.py", "handle.py", "item_calls.py"}  # the last has only its own
