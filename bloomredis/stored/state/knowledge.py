"""The knowledge that one object has of one stored filter.

    state    | the next call
    ---------|-------------------------------------------------------------------------------------------
    unopened | opens the filter: creates it or checks it
    open     | goes to the filter that the handle names
    lost     | raises the loss; once a caller was told, opens a filter made on purpose since the loss
    making   | opens the filter that is stored, or makes it anew, since `on_lost` is "recreate"

    event                                | unopened | open     | lost | making
    -------------------------------------|----------|----------|------|-------
    opened: found and checked            | open     | open     | open | open
    dropped: the handle is out of date   | unopened | unopened | lost | making
    emptying: clear() or delete() begins | unopened | unopened | lost | making
    emptied: clear() or delete() is done | unopened | unopened | unopened | unopened
    lost, with on_lost="raise"           | lost     | lost     | lost | -
    lost, with on_lost="recreate"        | making   | making   | -    | making
    the same for a call during a clear() | unopened | unopened | lost | -

"-" cannot happen.  What a clear() or delete() of this object takes away from a call that was made while it
ran is no loss.  Damage is one all the same, since neither leaves it behind.

The knowledge is one immutable `Record`.  An event computes the next record and installs it in one atomic
step, which one caller wins.  `emptying` and `emptied` then compute again, from the record of the winner; the
other events have become void, since the record that they are about is not the last one.  Nothing in here
waits, logs or calls other code.  So a thread sees the record before an event or the one after it, and an
exception that comes between two lines, of a signal for instance, leaves one of the two behind.

Every call carries the `Link` of the record that it was made with.  So a refusal of the call is an event only
if that record is still the last one.  Otherwise `loss_since` tells whether a loss has ended the generation
that the call was made for.

A loss is *told* as soon as a caller gets it, at the end of a public call: its copies share the list `told`.
What asks for no item does not tell of a loss (`untold`): `info()`, which exporters call, and the renewal of a
claim.  A filter is *made on purpose* by `acknowledge()`, `clear()` or `restore()`, of any object anywhere.
"""

from __future__ import annotations

from copy import copy
from typing import Any, Final, Literal, TypeVar

from bloomredis.errors import FilterLostError
from bloomredis.protocol.forks import process
from bloomredis.protocol.steps import Op
from bloomredis.stored.state.handle import Handle, Link

T = TypeVar("T")
State = Literal["unopened", "open", "lost", "making"]
STATES: Final[tuple[State, ...]] = ("unopened", "open", "lost", "making")


class Emptying:
    """A clear() or delete() of this process that has begun: until it ends, a new generation is no loss.

    Its caller sets `ended` in a `finally`, by an assignment that nothing can interrupt.
    """

    __slots__ = ("_process", "ended")

    def __init__(self) -> None:
        self.ended = False
        self._process = process()

    @property
    def runs(self) -> bool:
        """True until it ends; a forked child does not run it."""
        return not self.ended and self._process is process()


class Record:
    """All that an object knows at one time; it never changes.

    :ivar found: the parameters that were found last, of a type that depends on the kind of filter.
    :ivar handle: of the open filter.
    :ivar loss: the error whose copies calls raise, or after which the filter is made anew.
    :ivar emptying: the clear() and delete() calls that run.
    :ivar link: where the next record is installed.  Its generation is that of the open filter, or of the one
        that was open before it was dropped.
    """

    __slots__ = ("emptying", "found", "handle", "link", "loss", "state")

    def __init__(
        self,
        state: State = "unopened",
        found: Any = None,
        *,
        handle: Handle | None = None,
        loss: FilterLostError | None = None,
        emptying: tuple[Emptying, ...] = (),
        generation: bytes | None = None,
    ) -> None:
        self.state: State = state
        self.found = found
        self.handle = handle
        self.loss = loss
        self.emptying = tuple(each for each in emptying if each.runs) if emptying else ()
        self.link = Link(generation) if handle is None else handle.link

    @property
    def loss_to_raise(self) -> FilterLostError | None:
        """The loss, unless the filter is made anew after it."""
        return self.loss if self.state == "lost" else None

    def __reduce__(self) -> tuple[object, ...]:
        return _restored, (self.state, self.found, self.handle, self.loss)


def _restored(state: State, found: Any, handle: Handle | None, loss: FilterLostError | None) -> Record:
    """Return an unpickled record, of whose loss nobody in this process was told."""
    if loss is not None:
        loss.told = [False]
    return Record(state, found, handle=handle, loss=loss)


class Knowledge:
    """The last record of one object, and the events that replace it.

    :param recreates: a lost filter is made anew, by `on_lost="recreate"`.
    """

    def __init__(self, *, recreates: bool = False) -> None:
        self.recreates = recreates
        self.seen = Record()
        """The last record, or one that has a successor by now: where `now` begins to look."""

    def now(self) -> Record:
        """Return the last record."""
        record = self.seen
        while (later := record.link.next.get(0)) is not None:
            self.seen = record = later
        return record

    def _install(self, record: Record, new: Record) -> bool:
        """Install the successor of a record; False if another caller has done so."""
        won = record.link.next.setdefault(0, new) is new  # the atomic step
        if won:
            self.seen = new  # which spares the next call a look
        return won

    def __getstate__(self) -> dict[str, object]:
        return {"recreates": self.recreates, "seen": self.now()}

    # -- events: a row of the table each

    def opened(self, since: Record, handle: Handle, found: Any = None) -> bool:
        """Use the filter that was found; False if the knowledge has changed since, so it may be older."""
        return self._install(since, Record("open", found, handle=handle, emptying=since.emptying))

    def dropped(self, link: Link) -> None:
        """Open the filter again: what this record says is out of date, which is no loss."""
        record = self.now()
        if record.link is link and record.state == "open":
            left = record.link.generation
            self._install(record, Record("unopened", record.found, emptying=record.emptying, generation=left))

    def emptying(self, emptying: Emptying) -> Record:
        """Note that a clear() or delete() begins; return the record with which it does.  A loss stays."""
        while True:
            record = self.now()
            state: State = "unopened" if record.state == "open" else record.state
            left, running = record.link.generation, (*record.emptying, emptying)
            new = Record(state, record.found, loss=record.loss, emptying=running, generation=left)
            if self._install(record, new):
                return new

    def emptied(self) -> None:
        """Open the filter again, since clear() or delete() is done, which ends a loss."""
        record = self.now()
        while not self._install(record, Record("unopened", record.found, emptying=record.emptying)):
            record = self.now()

    def lost(self, since: Record, loss: FilterLostError) -> bool:
        """Note that the filter of a record is lost; False if there is nothing to tell.

        That is so if this object has taken it away itself, or if the record is not the last one any more.
        """
        is_own = not loss.is_damage and any(each.runs for each in since.emptying)
        if is_own and not self.recreates:
            self.dropped(since.link)
            return False
        state: State = "making" if self.recreates else "lost"
        return (
            self._install(since, Record(state, since.found, loss=loss, emptying=since.emptying))
            and not is_own
        )


def loss_since(link: Link) -> FilterLostError | None:
    """Return the loss that has ended the generation of a record, if an object has met one since.

    None if the filter is made anew after it: the call is repeated then, as after any other change.
    """
    record = link.next.get(0)
    generation = link.generation
    while record is not None and record.state in ("open", "unopened"):
        if generation is None or record.link.generation != generation:
            return None
        record = record.link.next.get(0)
    return None if record is None else record.loss_to_raise


def raise_loss_since(link: Link) -> None:
    """Raise the loss that has ended the generation of a record, if there was one."""
    loss = loss_since(link)
    if loss is not None:
        raise copy(loss)


def untold(work: Op[T]) -> Op[T]:
    """Run work that no caller asked for; a loss that it meets is not told by its error."""
    try:
        return (yield from work)
    except FilterLostError as error:
        error.told = [False]
        raise
