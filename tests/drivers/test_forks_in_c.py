"""Children that are forked in C, without Python's hooks, and clones of a process."""

from __future__ import annotations

import ctypes
import sys
import time
from collections import Counter
from collections.abc import Callable
from typing import Any, Final

import pytest
import redis

from bloomredis import BloomError, BloomFilter, ClaimLostError, CountingBloomFilter, OutcomeUnknownError
from bloomredis.protocol import forks
from tests.support.background import PATIENCE, Child
from tests.support.servers import Server
from tests.support.values import for_each

ITEMS: Final = [str(number) for number in range(300)]
SHAPE: Final[dict[str, Any]] = {"capacity": 10_000, "error_rate": 1e-9}


def fork() -> int:
    """Fork as a C program does, while holding the interpreter's lock.

    No other thread may wait for the lock at that time: it would not exist in the child to take it.
    """
    interval = sys.getswitchinterval()
    sys.setswitchinterval(PATIENCE)
    time.sleep(2 * interval)  # a thread that waited for the lock has got it by now
    try:
        return int(ctypes.PyDLL(None).fork())
    finally:
        sys.setswitchinterval(interval)


def outcome(call: Callable[[], Any]) -> Any:
    """Return the result of a call, or the class of its error."""
    try:
        return call()
    except BloomError as error:
        return type(error)


def clones(client: redis.Redis, *calls: Callable[[], Any]) -> list[Any]:
    """Return the outcomes of these calls, each run in a clone of this process with the same id."""
    pool = client.connection_pool
    pool.disconnect()

    def clone(call: Callable[[], Any]) -> Any:
        vars(forks)["_mark"][0] = 1
        pool.reset()  # each clone has its own connections
        return outcome(call)

    return [Child(lambda call=call: clone(call), fork).result() for call in calls]  # type: ignore[misc]


def each_added(f: Any) -> list[str]:
    return [item for item in ITEMS if f.add(item)]


def each_done(f: Any) -> list[str]:
    done = []
    for item in ITEMS:
        with f.claim(item) as claim:
            if claim:
                done.append(item)
    return done


def each_taken_once(f: Any) -> list[str]:
    done: list[str] = []
    for item in ITEMS:
        f.once(None)(done.append)(item)
    return done


@for_each("work", [each_added, each_done, each_taken_once])
def test_each_item_has_one_winner(any_server: Server, work: Callable[[Any], list[str]]) -> None:
    """Parent and children, each with its own connections, have one winner for each item."""
    with any_server.client() as client:
        client.flushall()
        f = BloomFilter[str](client, "seen", **SHAPE)
        f.add("warm")
        with f.claim("warm too"):
            pass
        children = [Child(lambda: work(f), fork) for _ in range(3)]
        won = [*work(f), *(item for child in children for item in child.result())]
    assert Counter(won) == Counter(ITEMS)


def test_a_system_that_clears_no_memory(any_server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where fork does not clear memory, the process id is compared, and each item has one winner too."""
    mark = forks.MarkByProcess()
    assert not mark[0]
    mark[0] = 1
    monkeypatch.setattr(forks, "_mark", mark)
    with any_server.client() as client:
        f = BloomFilter[str](client, "seen", **SHAPE)
        f.add("warm")
        child = Child(lambda: (mark[0], each_added(f), mark[0]), fork)
        won = each_added(f)
        before, others, after = child.result()
    assert (before, after, mark[0]) == (0, 1, 1)
    assert Counter(won + others) == Counter(ITEMS)


def test_a_finaliser_in_the_first_call_of_a_child(any_client: redis.Redis) -> None:
    """An object of the parent that ends while the child's state is replaced may ask for the process, too."""

    class Finalised:
        def after_fork(self) -> None:
            """Do once what the end of a claim's block does."""
            if not begun:
                begun.append(True)
                told.append(forks.process())

    begun, told, last = list[bool](), list[object](), Finalised()
    forks.register_after_fork(last)
    f = BloomFilter[str](any_client, "seen", **SHAPE)
    f.add("warm")
    before = forks.process()
    assert Child(lambda: (f.add("x"), len(told), before in told), fork).result() == (True, 1, False)
    del last


def test_a_child_holds_no_claim_of_its_parent(any_client: redis.Redis) -> None:
    """A child gets "busy" for its parent's claim, and none of the parent's pending answers."""
    f = BloomFilter[str](any_client, "seen", **SHAPE)
    with f.claim("a") as claim:
        assert Child(lambda: f.claim("a").state, fork).result() == "busy"
        Child(lambda: claim.__exit__(None, None, None), fork).result()
        assert claim.state == "claimed"
        assert not f.contains("a")


@pytest.mark.parametrize("is_warm", [False, True])
class TestClones:
    """Two clones make the same call: one execution never answers both."""

    def filter_of(self, client: redis.Redis, kind: Any = BloomFilter, *, is_warm: bool) -> Any:
        """Return a filter, used before if it is warm."""
        f = kind(client, "seen", **SHAPE)
        f.create()
        if is_warm:
            f.add("warm")
        return f

    @pytest.mark.parametrize("many", [False, True])
    def test_an_add(self, any_client: redis.Redis, *, is_warm: bool, many: bool) -> None:
        """The second clone gets False or an unknown outcome, never True; its later calls are certain."""
        f = self.filter_of(any_client, is_warm=is_warm)

        def add(*, item: str) -> Any:
            return f.add_many([item]) if many else f.add(item)

        def add_again() -> Any:
            first = outcome(lambda: add(item="x"))
            return first, add(item="y"), add(item="y")

        first, second = clones(any_client, lambda: add(item="x"), add_again)
        yes, no = ([True], [False]) if many else (True, False)
        assert first == yes
        assert second[0] != yes
        assert second[1:] == (yes, no)

    def test_an_error_of_an_add_is_final(self, any_client: redis.Redis, *, is_warm: bool) -> None:
        """A retry by token or item raises the same error."""
        f = self.filter_of(any_client, is_warm=is_warm)

        def add() -> Any:
            told, token = [], None
            for _ in range(3):
                with pytest.raises(OutcomeUnknownError) as met:
                    f.add("x", token=token)
                told.append((bool(met.value.token), met.value.final))
                token = None if token else met.value.token
            return told

        _, told = clones(any_client, lambda: f.add("x"), add)
        assert told == [(True, True)] * 3

    def test_a_removal(self, any_client: redis.Redis, *, is_warm: bool) -> None:
        """Both removals take effect."""
        f = self.filter_of(any_client, CountingBloomFilter, is_warm=is_warm)
        for _ in range(3):
            f.add("x")
        assert clones(any_client, lambda: f.remove("x"), lambda: f.remove("x")) == [True, True]
        assert [f.remove("x"), f.remove("x")] == [True, False]

    def test_a_queued_add(self, any_client: redis.Redis, *, is_warm: bool) -> None:
        """A call queued by both clones never answers both."""
        f = self.filter_of(any_client, is_warm=is_warm)

        def add() -> Any:
            with any_client.pipeline() as pipe:
                f.queue_add(pipe, "x")
                return [reply == 1 for reply in pipe.execute(raise_on_error=False)]

        assert clones(any_client, add, add) == [[True], [False]]

    def test_a_commit(self, any_client: redis.Redis, *, is_warm: bool) -> None:
        """Both clones have the claim; the second is told that the item is done."""
        f = self.filter_of(any_client, is_warm=is_warm)
        claim = f.claim("x")

        def commit() -> str:
            with pytest.raises(ClaimLostError, match="done already"):
                claim.commit()
            return str(claim.state)

        assert clones(any_client, claim.commit, commit) == [None, "lost"]

    def test_commits_of_their_own(self, any_client: redis.Redis, *, is_warm: bool) -> None:
        """No caller gets an error because the other clone used the session."""
        f = self.filter_of(any_client, is_warm=is_warm)
        assert clones(any_client, *(lambda item=item: f.claim(item).commit() for item in "ab")) == [
            None,
            None,
        ]
        assert f.contains_many(["a", "b"]) == [True, True]

    def test_a_deletion(self, any_client: redis.Redis, *, is_warm: bool) -> None:
        """Each clone recreates the filter and deletes it."""
        f = self.filter_of(any_client, is_warm=is_warm)

        def delete() -> tuple[bool, int]:
            f.acknowledge()
            return f.delete(), any_client.exists("seen")

        assert clones(any_client, delete, delete) == [(True, 0), (True, 0)]

    def test_a_load(self, any_client: redis.Redis, *, is_warm: bool) -> None:
        """Both loads are counted."""
        f = self.filter_of(any_client, is_warm=is_warm)
        before = f.info().count
        updates = [lambda n=n: f.update([f"{n}.{i}" for i in range(50)]) for n in (1, 2)]
        assert clones(any_client, *updates) == [50, 50]
        f = BloomFilter(any_client, "seen", **SHAPE)
        assert f.info().count == before + 100
