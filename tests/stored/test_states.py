"""The states of an object's knowledge of its stored filter: each cell of the transition table."""

from __future__ import annotations

import ast
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
    if line.count("|") == 3 and "--|--" not in line
]
STATES: Final = _ROWS[0][1:]
CELLS: Final = [
    (row[0], before, after)
    for row in _ROWS[1:]
    for before, after in zip(STATES, row[1:], strict=True)
    if set(after) - {"-"}
]


class Known(Versioned[Any]):
    """Stored state that reacts to a loss by `on_lost`."""

    called = "Known"
    current = clear = delete = NotImplemented

    def __init__(self, on_lost: Any = "raise") -> None:
        super().__init__("seen", ttl=0, on_lost=on_lost, wait=None)

    def _find(self, *, creates: bool) -> Any:
        yield

    def _accept(self, found: Any) -> Any:
        return self.remember(bytes(56), planning.plan_layout("blocked", 1000, 0.01))

    def find_it(self) -> None:
        self._accept(None)

    def meet_a_loss(self) -> None:
        with suppress(FilterLostError):
            self._apply_on_lost("it has vanished")

    @property
    def state(self) -> str:
        if self.handle is not None:
            return "open"
        return "unopened" if self._lost is None else "lost"


def lost_while_emptied(stored: Known) -> None:
    with stored.in_flight.emptying():
        stored.meet_a_loss()


EVENTS: Final[dict[str, Callable[[Known], object]]] = {
    "opened, or its newer state was accepted": Known.find_it,
    "the handle is dropped": Known.forget,
    "reset(): clear() or delete() begins": Known.reset,
    "reopen(): reserve() begins": lambda stored: next(stored.reopen()),
    'a loss; on_lost="raise"': Known.meet_a_loss,
    'a loss; on_lost="recreate"': Known.meet_a_loss,
    "a loss while clear() or delete() runs": lost_while_emptied,
}
"""Events and how to cause them."""
REACHED: Final[dict[str, Callable[[Known], object]]] = {
    "unopened": Known.reset,
    "open": Known.find_it,
    "lost": Known.meet_a_loss,
}
"""The states and how to reach them."""


def outcome(event: str, before: str) -> str:
    """Return the state in which an event leaves an object."""
    stored = Known("recreate" if "recreate" in event else "raise")
    REACHED[before](stored)
    assert stored.state == before
    EVENTS[event](stored)
    return stored.state


@for_each(("event", "before", "after"), CELLS)
def test_each_transition(event: str, before: str, after: str) -> None:
    """Each transition is as the table at the top of the module says."""
    assert outcome(event, before) == after


def test_the_table_is_whole() -> None:
    """It has three states and seven events."""
    assert STATES == ["unopened", "open", "lost"]
    assert [row[0] for row in _ROWS[1:]] == [*EVENTS]
    assert {after for *_, after in CELLS} == set(STATES)


def test_what_is_lost_is_not_opened() -> None:
    """It raises before any call."""
    stored = Known()
    stored.meet_a_loss()
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
        if {"handle", "_lost", "_changes", "clears"} & {*assigned(path)}
    }
    assert changing == {"base.py", "versioned.py", "handle.py", "item_calls.py"}  # the last has only its own
