"""The judge accepts what is right in rare schedules, and finds the faults that are next to them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from copy import copy
from typing import Any, Final

import pytest

from bloomredis.errors import FilterLostError
from bloomredis.operations.claims.state import ClaimState
from bloomredis.operations.items.local_cache import CachedMembership
from bloomredis.protocol.gather import told_mark
from bloomredis.protocol.pending import PendingCalls
from bloomredis.stored.shards.shards import StoredShards
from bloomredis.stored.state.versioned import Versioned
from tests.simulation.__main__ import calls
from tests.simulation.actions import Action, Scenario
from tests.simulation.processes import Setup
from tests.simulation.running import Simulator

Step = tuple[Any, ...]

ONE: Final = (Setup("p0", ((),)),)
TWO: Final = (Setup("p0", ((),)), Setup("p1", ((),)))


@pytest.fixture
def simulator() -> Iterator[Simulator]:
    """A simulator in its environment."""
    simulator = Simulator()
    with simulator.installed():
        yield simulator


def broken(simulator: Simulator, kind: str, processes: Sequence[Setup], *steps: Step) -> str | None:
    """Carry out a schedule; return the rule that it broke, if any."""
    begun = Scenario(kind, (), tuple(processes), frozenset(), frozenset(calls()), is_warm=True)
    violation = simulator.replay(begun, [Action(name, tuple(args)) for name, *args in steps])
    return None if violation is None else violation.rule


def start(ref: str, owner: str, verb: str, *items: int, other: str | None = None) -> Step:
    """Return the start of a call."""
    return "start", ref, owner, verb, items, other


def step(ref: str, times: int = 1) -> list[Step]:
    """Return the execution of a call's next commands, each with its reply."""
    return [(what, ref) for _ in range(times) for what in ("execute", "reply")]


TOLD: Final = (
    *(start("c1", "p0.a", "add", 0), *step("c1", 2)),
    *(start("c2", "p1.a", "clear"), *step("c2", 2)),
    *(start("c3", "p0.a", "add", 0), *step("c3")),
)
"""An object has raised the loss of a filter, and another one has cleared it, which marks the new one."""


def going_on(*meanwhile: Step) -> list[Step]:
    """Return a schedule of two calls of an object that goes on after a loss, the second of which waits.

    :param meanwhile: what happens after the first call has read the marked filter.
    """
    first, second = start("c4", "p0.a", "add", 1), start("c5", "p0.a", "info")
    return [*TOLD, first, ("execute", "c4"), *meanwhile, second, ("execute", "c5"), ("reply", "c4")]


CLEARED: Final = (start("c6", "p1.a", "clear"), *step("c6", 2))


def test_a_call_that_meets_the_loss_of_what_another_call_has_got(simulator: Simulator) -> None:
    """It raises a loss that came after its begin, though what is stored then was made on purpose."""
    steps = [*going_on(*CLEARED), ("reply", "c5"), *step("c4"), *step("c5")]
    assert broken(simulator, "BloomFilter", TWO, *steps) is None


def test_a_loss_after_a_call_that_went_on(simulator: Simulator) -> None:
    """A call that began before its object raised a loss may be the one that goes on."""
    tasks = (Setup("p0", ((),), is_async=True), TWO[1])
    steps = [
        *(start("c1", "p0.a", "add", 0), *step("p0.a/0", 2)),
        *(start("c2", "p1.a", "clear"), *step("c2", 2)),
        *(start("c3", "p0.a", "add", 0), start("c4", "p0.a", "add", 1), *step("p0.a/0", 3)),
        *(*CLEARED, start("c5", "p0.a", "info"), *step("p0.a/0")),
    ]
    assert broken(simulator, "BloomFilter", tasks, *steps) is None


def test_a_loss_after_an_info_that_went_on(simulator: Simulator) -> None:
    """So may be one that tells nobody of a loss."""
    steps = [*TOLD, start("c4", "p0.a", "info"), *step("c4", 2), *CLEARED]
    steps += [start("c5", "p0.a", "info"), *step("c5")]
    assert broken(simulator, "BloomFilter", TWO, *steps) is None


def test_a_call_that_does_not_go_on_with_what_another_call_has_got(
    simulator: Simulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The filter that was made on purpose is stored all the time: a second error is wrong."""
    after = Versioned._after

    def again(self: Any, known: Any, loss: Any) -> Any:
        found = yield from after(self, known, loss)
        if self.known.now() is not known:
            raise copy(loss)
        return found

    steps = [*going_on(), ("reply", "c5"), *step("c4"), *step("c5", 2)]
    assert broken(simulator, "BloomFilter", TWO, *steps) is None
    monkeypatch.setattr(Versioned, "_after", again)
    assert broken(simulator, "BloomFilter", TWO, *steps) == "not going on"


def beside_a_clear(*meanwhile: Step) -> list[Step]:
    """Return a schedule of a clear() beside two adds of the same object that open the filter.

    :param meanwhile: what happens between the second one and the last look of the clear().
    """
    return [
        *(start("c1", "p0.a", "add", 0), *step("c1", 2)),
        *(start("c2", "p0.a", "clear"), *step("c2"), ("execute", "c2")),
        *(start("c3", "p0.a", "add", 1), *step("c3"), ("reply", "c2"), *step("c3")),
        *(start("c4", "p0.a", "add", 2), *step("c4", 2), *meanwhile, *step("c2")),
    ]


def test_a_loss_of_what_another_call_has_got_beside_a_clear(simulator: Simulator) -> None:
    """The object stays with the filter of that call: after it the filter was cleared by another object."""
    steps = [*beside_a_clear(*CLEARED), start("c7", "p0.a", "add", 3), *step("c7")]
    assert broken(simulator, "BloomFilter", TWO, *steps) is None


def test_a_loss_after_a_clear_that_left_what_the_calls_beside_it_got(
    simulator: Simulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing was lost since the clear() of the object."""
    take = Versioned._take_emptied

    def taken(self: Any, found: Any, since: Any) -> Any:
        yield from take(self, found, since)
        loss = FilterLostError("it is damaged")
        loss.is_damage = True  # else it would count as what the clear() took away
        self.known.lost(self.known.now(), loss)

    steps = [*beside_a_clear(), start("c7", "p0.a", "add", 3), *step("c7")]
    assert broken(simulator, "BloomFilter", TWO, *steps) is None
    monkeypatch.setattr(Versioned, "_take_emptied", taken)
    assert broken(simulator, "BloomFilter", TWO, *steps) == "no loss"


def test_an_acknowledgement_of_a_new_object_says_nothing_of_those_beside_it(simulator: Simulator) -> None:
    """It found no filter; another one makes two, of which the first is gone again."""
    steps = [
        *(start("c1", "p0.a", "acknowledge"), start("c2", "p0.a", "add", 0), *step("c2"), ("flush_all",)),
        *(start("c3", "p0.a", "acknowledge"), ("execute", "c3"), ("execute", "c2"), ("flush_all",)),
        *(("reply", "c2"), ("reply", "c3"), ("execute", "c1"), ("execute", "c3"), ("reply", "c1")),
        *(("reply", "c3"), start("c4", "p0.a", "add", 1), ("execute", "c3"), ("execute", "c4")),
        *(("reply", "c3"), ("reply", "c4"), *step("c4")),
    ]
    assert broken(simulator, "BloomFilter", ONE, *steps) is None


def test_an_acknowledgement_of_a_new_object_hides_no_loss(
    simulator: Simulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It ends after the object has raised a loss, of which it knows nothing."""

    def accepted(self: Any, *_: Any) -> Any:
        return self._find(creates=True)

    steps = [
        *(start("c1", "p0.a", "acknowledge"), start("c2", "p0.a", "add", 0), *step("c2"), ("flush_all",)),
        *(("execute", "c1"), start("c3", "p1.a", "add", 0), *step("c3", 2), *step("c2"), ("reply", "c1")),
        *(start("c4", "p0.a", "add", 0), *step("c4", 2)),
    ]
    assert broken(simulator, "BloomFilter", TWO, *steps) is None
    monkeypatch.setattr(Versioned, "_after", accepted)
    assert broken(simulator, "BloomFilter", TWO, *steps) == "silent loss"


def claimed_late(ref: str) -> list[Step]:
    """Return a schedule with a claim that is made twice, since its first reply came late.

    The first command gets the claim, the second one finds the item done.  Later the item is removed.
    """
    return [
        *(start("c1", "p1.a", "create"), *step("c1")),
        *(start("c24", "p1.a", "claim_as", 1), *step("c24")),
        *(start("c2", "p1.a", "commit", other="c24"), *step("c2")),
        *(start("c3", "p1.a", "remove", 1), *step("c3")),
        *(start(ref, "p0.a", "claim_as", 1), *step(ref), ("wait", 0.6), *step(ref)),
        *(start("c4", "p1.a", "add", 1), *step("c4"), *step(ref)),
        *(start("c5", "p1.a", "remove", 1), *step("c5")),
        *(start("c37", "p1.a", "claim_as", 1), *step("c37")),
    ]


def test_a_claim_that_found_its_item_done_may_hold_it(simulator: Simulator) -> None:
    """Its first command has claimed the item: for its lease no other worker gets it."""
    assert broken(simulator, "CountingBloomFilter", TWO, *claimed_late("c8")) is None
    assert broken(simulator, "CountingBloomFilter", TWO, *claimed_late("c7")) is None


def test_a_claim_that_found_its_item_done_holds_it_by_its_name(
    simulator: Simulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A claim by the same name is not refused because of it."""
    monkeypatch.setattr(ClaimState, "is_replaceable", property(lambda _: False))
    assert broken(simulator, "CountingBloomFilter", TWO, *claimed_late("c8")) == "own name"
    assert broken(simulator, "CountingBloomFilter", TWO, *claimed_late("c7")) is None


def claimed_by_a_late_copy(seconds: float) -> list[Step]:
    """Return a schedule with a claim whose caller goes, and which is executed that many seconds later."""
    return [
        *(start("c1", "p0.a", "claim", 1), *step("c1"), ("cancel", "c1"), ("wait", seconds)),
        *(("stray", "c1.1"), start("c2", "p0.a", "claim", 1), *step("c2", 2)),
    ]


def test_a_late_copy_of_an_own_claim(simulator: Simulator, monkeypatch: pytest.MonkeyPatch) -> None:
    """The object knows its claim for the lease, and not for longer."""
    early, late = map(claimed_by_a_late_copy, (1.9, 2.1))
    assert broken(simulator, "BloomFilter", ONE, *early) is None
    assert broken(simulator, "BloomFilter", ONE, *late) is None
    monkeypatch.setattr(PendingCalls, "store_owners", lambda *_: None)
    assert broken(simulator, "BloomFilter", ONE, *early) == "own claim"


def test_a_call_that_a_signal_keeps_from_going_on(simulator: Simulator) -> None:
    """Its object goes on with the next call, after another loss without an error."""
    steps = [
        *TOLD,
        *(start("c4", "p0.a", "add", 1), ("execute", "c4"), ("interrupt_inside", "p0", 8), ("reply", "c4")),
        *(*CLEARED, start("c5", "p0.a", "add", 1), *step("c5", 2)),
    ]
    assert broken(simulator, "BloomFilter", TWO, *steps) is None


def asked_without_a_record(simulator: Simulator, on_lost: str) -> str | None:
    """Let a new object test an item that another one has added after the record was lost."""
    options = (("on_lost", on_lost), ("claims", False), ("nodes", 1))
    begun = Scenario("ShardedBloomFilter", options, ONE, frozenset(), frozenset(calls()), is_warm=True)
    steps = [
        *(start("c1", "p0.a", "create"), *whole("c1"), ("evict_record",)),
        *(start("c2", "p0.a", "add", 0), *whole("c2"), ("kill", "p0")),
        *(start("c3", "p0.a", "contains", 0), *whole("c3")),
    ]
    violation = simulator.replay(begun, [Action(name, tuple(args)) for name, *args in steps])
    return None if violation is None else violation.rule


def whole(ref: str) -> list[Step]:
    """Return the execution of all commands of a call of a sharded filter."""
    return [(what, ref) for _ in range(12) for what in ("execute", "execute", "execute", "reply")]


def test_a_new_object_that_finds_shards_without_their_record(
    simulator: Simulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With on_lost="recreate" it may find no filter; otherwise it raises the loss."""

    def stay_alone(_: Any) -> Any:
        yield from ()
        return False

    assert asked_without_a_record(simulator, "recreate") is None
    assert asked_without_a_record(simulator, "raise") is None
    monkeypatch.setattr(StoredShards, "_stay_alone", stay_alone)
    assert asked_without_a_record(simulator, "raise") == "false negative"


CACHED: Final = (Setup("p0", ((("local_cache", True),),)), TWO[1])
MET: Final = (
    *(start("c1", "p0.a", "claim", 0), *step("c1", 2)),
    *(*CLEARED, start("c2", "p0.a", "add", 1), ("execute", "c2")),
)
"""An add of an object with a local cache reads a piece first, and meets the loss with it."""


def test_a_piece_that_meets_a_loss_answers_nobody(
    simulator: Simulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An add that hid the loss and went on with another filter would be found by its answer."""
    steps = [*MET, ("reply", "c2"), *step("c2", 2)]
    assert broken(simulator, "BloomFilter", CACHED, *steps) is None
    read = CachedMembership._read

    def hidden(*args: Any) -> Any:
        try:
            return (yield from read(*args))
        except FilterLostError as loss:
            told_mark(loss)[0] = True  # so the object goes on
            return False

    monkeypatch.setattr(CachedMembership, "_read", hidden)
    assert broken(simulator, "BloomFilter", CACHED, *steps) == "silent loss"
