"""The knowledge of one object about its stored filter: each cell of the table, and its one atomic step."""

from __future__ import annotations

import ast
import pickle
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from copy import copy
from itertools import count
from pathlib import Path
from typing import Any, ClassVar, Final

import pytest

from bloomredis.errors import FilterLostError
from bloomredis.operations.kinds.plain import PlainOperations
from bloomredis.protocol.steps import Op
from bloomredis.stored import planning
from bloomredis.stored.state import knowledge
from bloomredis.stored.state.handle import Handle, Link
from bloomredis.stored.state.knowledge import STATES, Emptying, Knowledge, Record, loss_since, untold
from tests.support.lines import Interrupt
from tests.support.points import raised_at
from tests.support.values import for_each

_ROWS: Final = [
    [cell.strip() for cell in line.split("|")]
    for line in (knowledge.__doc__ or "").splitlines()
    if line.count("|") == 4 and "--|--" not in line
]
CELLS: Final = [
    (row[0].partition(":")[0], before, after)
    for row in _ROWS[1:]
    for before, after in zip(STATES, row[1:], strict=True)
    if after != "-"
]
LAYOUT: Final = planning.plan_layout("blocked", 1000, 0.01)


def handle(generation: bytes = b"the first") -> Handle:
    """Return a handle of a filter with this generation."""
    return Handle(bytes(56), LAYOUT, 1, b"seen", generation=generation)


def loss() -> FilterLostError:
    """Return a loss."""
    return FilterLostError("it has vanished")


def reached(state: str, *, recreates: bool = False) -> Knowledge:
    """Return the knowledge of an object in this state."""
    known = Knowledge(recreates=recreates or state == "making")
    if state != "unopened":
        known.opened(known.now(), handle())
    if state in ("lost", "making"):
        known.lost(known.now(), loss())
    assert known.now().state == state
    return known


def lost_while_emptied(known: Knowledge) -> None:
    """Meet a loss while clear() runs."""
    begun = Emptying()
    known.emptying(begun)
    known.lost(known.now(), loss())
    begun.ended = True


EVENTS: Final[dict[str, Callable[[Knowledge], object]]] = {
    "opened": lambda known: known.opened(known.now(), handle()),
    "dropped": lambda known: known.dropped(known.now().link),
    "emptying": lambda known: known.emptying(Emptying()),
    "emptied": Knowledge.emptied,
    'lost, with on_lost="raise"': lambda known: known.lost(known.now(), loss()),
    'lost, with on_lost="recreate"': lambda known: known.lost(known.now(), loss()),
    "the same for a call during a clear()": lost_while_emptied,
}
"""The events of the table, and how to cause them."""


@for_each(("event", "before", "after"), CELLS)
def test_each_cell(event: str, before: str, after: str) -> None:
    """Each event leaves each state as the table of the module says."""
    known = reached(before, recreates="recreate" in event)
    EVENTS[event](known)
    assert known.now().state == after


def test_the_table_is_whole() -> None:
    """It has all states and events, and each state is the result of an event."""
    assert tuple(_ROWS[0][1:]) == STATES
    assert [row[0].partition(":")[0] for row in _ROWS[1:]] == [*EVENTS]
    assert {after for *_, after in CELLS} == {*STATES}


@for_each("state", STATES)
def test_an_event_of_an_older_record_changes_nothing(state: str) -> None:
    """What was found or met before the last event says nothing about the present."""
    known = reached("open")
    since = known.now()
    known.emptied()
    if state != "unopened":
        known.opened(known.now(), handle(b"a later one"))
    if state in ("lost", "making"):
        known.recreates = state == "making"
        known.lost(known.now(), loss())
    last = known.now()
    assert not known.opened(since, handle())
    assert not known.lost(since, loss())
    known.dropped(since.link)
    assert known.now() is last
    assert last.state == state


@pytest.mark.skipif(sys.version_info[:2] != (3, 11), reason="others look for signals elsewhere")
def test_an_interrupted_event() -> None:
    """Calls are made with the last record, or their answers would be those of a filter that was left."""
    for number in count():
        stored = PlainOperations("f").stored
        first = stored.use(handle())
        since = stored.known.now()
        with raised_at(number, Interrupt) as where, suppress(Interrupt):
            stored.known.emptying(Emptying())
        assert stored.handle is (first if since.link.next.get(0) is None else None), where
        if not where:
            assert number > 5
            return


class Switching(dict[int, Any]):
    """The successor of a record: behind each look at it, another thread runs, which `then` is."""

    then: ClassVar[list[Callable[[], None]]] = []

    def get(self, key: int, default: Any = None) -> Any:
        found = super().get(key, default)
        self._switch()
        return found

    def setdefault(self, key: int, default: Any = None) -> Any:
        found = super().setdefault(key, default)
        self._switch()
        return found

    def _switch(self) -> None:
        if self.then:
            self.then.pop()()


@for_each("late", range(5))
def test_threads_that_are_late(late: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """No thread lets another one make calls with the handle of a filter that was left.

    The first thread stops behind its event, the second one behind a look for the last record.  Then the
    filter is lost and opened anew.  From now on a third thread makes calls whenever the others go on.
    """

    def init(self: Link, generation: bytes | None = None) -> None:
        self.generation, self.next = generation, Switching()

    monkeypatch.setattr(Link, "__init__", init)
    stored, anew, looks, made_with = PlainOperations("f").stored, handle(b"the second"), count(), []
    known, then = stored.known, Switching.then

    def second_thread() -> None:
        then.append(lose)
        known.now()

    def lose() -> None:
        if next(looks) < late:
            then.append(lose)
            return
        known.lost(known.now(), loss())
        known.opened(known.now(), anew)
        then.append(third_thread)

    def third_thread() -> None:
        made_with.append(stored.handle)
        then.append(third_thread)

    since = known.now()
    then.append(second_thread)
    known.opened(since, handle())
    is_lost = then.pop() is third_thread
    assert is_lost or late > 1
    assert not is_lost or {*made_with, stored.handle} == {anew}


def test_one_of_many_threads_wins() -> None:
    """Of eight threads that meet one loss, one records it; all calls that were sent before raise it."""
    for _ in range(100):
        known, start, won = reached("open"), threading.Barrier(8), list[bool]()
        since = known.now()

        def meet(known: Knowledge = known, since: Record = since, start: threading.Barrier = start) -> None:
            start.wait()
            won.append(known.lost(since, loss()))  # noqa: B023 - all threads end in this round

        threads = [threading.Thread(target=meet) for _ in range(8)]
        for each in threads:
            each.start()
        for each in threads:
            each.join()
        assert won.count(True) == 1
        assert loss_since(since.link) is known.now().loss


def test_the_loss_of_a_call() -> None:
    """A call raises the loss of its own generation, whatever has followed; no loss of another one."""
    known = Knowledge()
    known.opened(known.now(), handle())
    first = known.now()
    known.opened(first, handle())  # of the same generation: the mark was set, or a layer began
    met = loss()
    known.lost(known.now(), met)
    known.opened(known.now(), handle(b"the second"))
    second = known.now()
    assert loss_since(first.link) is met
    known.emptied()
    known.lost(known.now(), loss())
    assert loss_since(second.link) is None
    assert loss_since(first.link) is met


@for_each("event", ["dropped", "emptying"])
def test_the_loss_of_a_call_after_a_second_opening(event: str) -> None:
    """The filter was opened again meanwhile, and was the same: the loss ends that generation, too."""
    known = Knowledge()
    known.opened(known.now(), handle())
    first = known.now()
    if event == "dropped":
        known.dropped(first.link)
    else:
        begun = Emptying()
        known.emptying(begun)
        begun.ended = True  # clear() was interrupted before it was sent
    known.opened(known.now(), handle())
    met = loss()
    known.lost(known.now(), met)
    known.opened(known.now(), handle(b"the second"))
    assert loss_since(first.link) is met


def test_a_filter_that_is_made_anew_raises_nothing() -> None:
    """With on_lost="recreate" the calls that were sent before go on."""
    known = reached("making")
    assert known.now().loss is not None
    assert known.now().loss_to_raise is None


def test_a_clear_ends_a_loss_only_when_it_is_done() -> None:
    """If it fails, nobody goes on silently with what is stored."""
    known, begun = reached("lost"), Emptying()
    since = known.emptying(begun)
    begun.ended = True
    assert known.now() is since
    assert since.state == "lost"
    known.emptied()
    assert known.now().state == "unopened"


def test_a_clear_that_has_ended_hides_no_loss() -> None:
    """Also if it ended with an error."""
    known, begun = reached("open"), Emptying()
    known.emptying(begun)
    begun.ended = True
    known.opened(known.now(), handle())
    known.lost(known.now(), loss())
    assert known.now().state == "lost"


def test_a_pickle_knows_the_filter() -> None:
    """It knows the open filter, and a loss of which nobody in its process was told."""
    known = reached("open")
    assert pickle.loads(pickle.dumps(known)).now().handle.identity == bytes(56)  # noqa: S301 - its own
    lost = reached("lost")
    met = lost.now().loss
    assert met is not None
    met.told[0] = True
    other: Knowledge = pickle.loads(pickle.dumps(lost))  # noqa: S301 - its own
    theirs = other.now().loss_to_raise
    assert theirs is not None
    assert theirs.told == [False]
    assert met.told == [True]


def test_what_nobody_asked_for_tells_nobody() -> None:
    """The error of `untold` work has a mark of its own."""
    met = loss()

    def work() -> Op[None]:
        raise copy(met)
        yield

    with pytest.raises(FilterLostError) as caught:
        next(untold(work()))
    caught.value.told[0] = True
    assert met.told == [False]


def test_one_module_changes_what_is_known() -> None:
    """Nothing else assigns to a record, or installs one."""

    def assigned(path: Path) -> Iterator[str]:
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
                yield node.attr
            if isinstance(node, ast.Attribute) and node.attr == "setdefault":
                yield ast.unparse(node)

    names = {"_seen", "handle", "loss", "emptying", "link", "record.link.next.setdefault"}
    folder = Path(knowledge.__file__).parents[1]
    changing = {path.name for path in folder.glob("**/*.py") if names & {*assigned(path)}}
    assert changing == {"knowledge.py", "item_calls.py"}  # a call has the handle that it was made with
