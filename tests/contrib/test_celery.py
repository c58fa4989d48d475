"""Celery's own workers, with a broker on a real server."""

from __future__ import annotations

import datetime as dt
import decimal
import os
import re
import signal
import subprocess
import sys
import uuid
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any

import pytest
import redis
from celery import chain, chord
from celery.exceptions import ImproperlyConfigured
from kombu.utils.json import dumps, loads, register_type
from pydantic import BaseModel

import bloomredis.asyncio
from bloomredis import Skipped
from tests.contrib.celery_worker import worker
from tests.contrib.violence import KEPT, acknowledge, calls, children, lose, restarting
from tests.support.readme import ROOT, on_page
from tests.support.servers import Server, running
from tests.support.values import for_each
from tests.support.waiting import wait_until

SENDS = """
import sys
from tests.contrib.tasks import ship
for carrier in ("rail", "road"):
    for order in sys.argv[1:]:
        ship.delay(order, carrier)
"""
"""A program that sends each order twice."""


@pytest.fixture
def tasks(any_server: Server, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The module of the tasks, with its broker on the server."""
    monkeypatch.setenv("BLOOMREDIS_TEST_SOCKET", any_server.socket)
    from tests.contrib import tasks

    tasks.seen.acknowledge()  # the tests before this one may have lost it
    tasks.seen.create()
    return tasks


def notes(tasks: Any) -> list[list[str]]:
    """Return the notes of the bodies."""
    return [note.split() for note in tasks.notes.lrange("notes", 0, -1)]


def is_drained(server: Server) -> bool:
    """Return whether the broker has no message, neither waiting nor with a worker."""
    with redis.Redis(unix_socket_path=server.socket, db=1) as broker:
        pipe = broker.pipeline()
        pipe.llen("celery")
        pipe.hlen("unacked")
        return not any(pipe.execute())


def is_stopped_in_the_middle(tasks: Any, server: Server, worker: subprocess.Popen[bytes]) -> bool:
    """Stop a worker; let it go on unless it is in a body, and a few bodies have ended.

    It also goes on while any worker puts messages back: it has a lock, for which others wait five minutes.
    """
    os.killpg(worker.pid, signal.SIGSTOP)
    noted = notes(tasks)
    mine = [verb for verb, _, process in noted if os.getpgid(int(process)) == worker.pid]
    with redis.Redis(unix_socket_path=server.socket, db=1) as broker:
        is_locked = broker.exists("unacked_mutex")
    if not is_locked and mine[-1:] == ["begin"] and sum(verb == "end" for verb, *_ in noted) >= 4:
        return True
    os.killpg(worker.pid, signal.SIGCONT)
    return False


def test_a_body_completes_once_for_each_item(tasks: Any, any_server: Server) -> None:
    """Sent three times, with a long body and a killed worker, no two runs of an item overlap."""
    items = ["long", *(f"item-{number}" for number in range(40))]
    with worker("one", 1) as one, worker("two"):
        for _ in range(3):  # one message may be lost with a worker that just takes it from the broker
            for item in items:
                tasks.work.delay(item, 2.5 * tasks.VISIBILITY if item == "long" else 0.3)
        wait_until(
            "it is in the middle", lambda: is_stopped_in_the_middle(tasks, any_server, one), every=0.05
        )
        os.killpg(one.pid, signal.SIGKILL)
        one.wait()
        tasks.notes.rpush("notes", "killed - -")
        wait_until("the broker is drained", lambda: is_drained(any_server), every=0.05)
    noted = notes(tasks)
    killed = noted.index(["killed", "-", "-"])
    assert sorted(item for verb, item, *_ in noted if verb == "end") == sorted(items)
    assert len(noted) == 2 * len(items) + 2  # one body was cut off, and the kill has a note
    for item in items:
        mine = [(at, verb, by) for at, (verb, name, by) in enumerate(noted) if name == item]
        *cut, begun, ended = mine
        assert [(verb, at < killed) for at, verb, _ in cut] in ([], [("begin", True)])
        assert not cut or begun[0] > killed
        assert (begun[1], ended[1], begun[2]) == ("begin", "end", ended[2])


def test_the_result_stays_that_of_the_run(tasks: Any, any_server: Server) -> None:
    """A copy of the message that arrives while the body runs does not change the result."""
    with worker("three"):
        result = tasks.work.apply_async(("item", 1.0), task_id="one-id")
        wait_until("the body runs", lambda: notes(tasks))
        tasks.work.apply_async(("item", 1.0), task_id="one-id")
        assert result.get(timeout=30) == "item"
        wait_until("the broker is drained", lambda: is_drained(any_server), every=0.05)
        assert (result.state, len(notes(tasks))) == ("SUCCESS", 2)


def test_a_retry_of_its_own_gives_the_item_back(tasks: Any) -> None:
    """The body runs again, and after that the item is done."""
    assert tasks.second_time.apply(("item",)).get() == 1
    again = tasks.second_time.apply(("item",))
    assert (again.state, again.result.state) == ("SUCCESS", "done")


def test_a_direct_call_runs_once(tasks: Any) -> None:
    """The second call returns `Skipped`, and so does a call while the item is busy."""
    item = tasks.work.item(("item", 0), {})
    assert tasks.work("item", 0) == "item"
    assert tasks.work("item", 0) == Skipped(item, "done", 0)
    with tasks.seen.claim(tasks.work.item(("other", 0), {})) as held:
        assert held
        assert tasks.work("other", 0).state == "busy"


def test_an_eager_call_runs_once(tasks: Any) -> None:
    """The second call succeeds with `Skipped`."""
    assert tasks.work.apply(("item", 0)).get() == "item"
    assert tasks.work.apply(("item", 0)).get() == Skipped(tasks.work.item(("item", 0), {}), "done", 0)


def test_the_result_of_a_repeat_is_what_on_done_returns(tasks: Any) -> None:
    """`on_done` takes the arguments, in direct and in eager calls."""
    assert tasks.looked_up("item", 0) == "item after 0"
    assert tasks.looked_up("item", seconds=1) == "item was there"
    assert tasks.looked_up.apply(("item", 2)).get() == "item was there"


def test_on_done_of_a_bound_task_takes_the_task(tasks: Any) -> None:
    """Like the body of the task."""

    @tasks.app.task(base=tasks.Once, bind=True, seen=tasks.seen, on_done=lambda self, item: (self.name, item))
    def bound(self: Any, item: str) -> str:
        return item

    assert [bound("item"), bound("item")] == ["item", (bound.name, "item")]


def test_a_repeat_has_a_result(tasks: Any) -> None:
    """With a worker: `get()` returns, a chain continues, and a chord completes."""
    item = tasks.part.item(("a",), {})
    with worker("results"):
        assert tasks.part.delay("a").get(timeout=30) == "a"
        assert tasks.part.delay("a").get(timeout=30) == Skipped(item, "done", 0)
        assert tasks.looked_up.delay("a", 0).get(timeout=30) == "a after 0"
        assert tasks.looked_up.delay("a", 0).get(timeout=30) == "a was there"
        assert chain(tasks.part.si("a"), tasks.following.si())().get(timeout=30) == "followed"
        gathered = chord([tasks.part.s(each) for each in ("a", "b")])(tasks.total.s()).get(timeout=30)
        assert sorted(gathered) == sorted([str(Skipped(item, "done", 0.0)), "b"])
    assert tasks.notes.hgetall("parts") == {"a": "1", "b": "1"}


def test_a_busy_twin_ends_with_a_result(tasks: Any) -> None:
    """It is sent again until the first message is done."""
    with worker("twins"):
        first = tasks.work.delay("item", 1.5)
        wait_until("the body runs", lambda: notes(tasks))
        second = tasks.work.delay("item", 0)
        assert second.get(timeout=30).state == "done"
        assert (first.state, first.get(timeout=30)) == ("SUCCESS", "item")
    assert len(notes(tasks)) == 2


def test_the_task_of_a_process_that_is_killed_is_run_again(tasks: Any, any_server: Server) -> None:
    """With the default settings of `Once`; the result is that of the second run."""
    with worker("children", 1):
        result = tasks.work.delay("item", 2.0)
        wait_until("the body runs", lambda: notes(tasks))
        os.kill(int(notes(tasks)[0][2]), signal.SIGKILL)
        assert result.get(timeout=60) == "item"
    assert [note[0] for note in notes(tasks)] == ["begin", "begin", "end"]


def kill_a_child(process: int, number: int) -> bool:
    """Kill one of the child processes of a process, if there is any."""
    found = children(process)
    with suppress(ProcessLookupError, ZeroDivisionError):
        os.kill(found[number % len(found)], signal.SIGKILL)
        return True
    return False


def has_come_to(notes: Any, number: int) -> bool:
    """Return whether more than `number` orders are shipped."""
    return bool(notes.llen("shipped") > number)


def test_no_order_is_lost_with_processes_that_are_killed(
    any_server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Twenty processes of a worker are killed, and the filter's server is away for a second."""
    orders = [f"order-{number}" for number in range(300)]
    kills = 20
    with running(any_server.binary, *KEPT) as seen:
        monkeypatch.setenv("BLOOMREDIS_TEST_SOCKET", any_server.socket)
        monkeypatch.setenv("BLOOMREDIS_TEST_FILTER", seen.socket)
        with worker("violence", 4) as process:
            sent = subprocess.run([sys.executable, "-c", SENDS, *orders], cwd=ROOT, check=False, timeout=60)
            assert sent.returncode == 0
            notes: Any = any_server.client(decode_responses=True)
            with restarting(seen, lambda: notes.llen("shipped") > 150):
                for number in range(kills):
                    least = 9 * number
                    wait_until("it works", partial(has_come_to, notes, least))
                    wait_until("a process is killed", partial(kill_a_child, process.pid, number))
                wait_until("all are shipped", lambda: set(notes.lrange("shipped", 0, -1)) == set(orders))
    counted = Counter(notes.lrange("shipped", 0, -1))
    assert [times for times in counted.values() if times > 2] == []
    assert len([order for order, times in counted.items() if times > 1]) <= kills  # one body in a process


def test_the_item_is_made_of_the_arguments(tasks: Any) -> None:
    """By their names, whether they are given by position or by name."""
    assert tasks.work.item(("a", 1), {}) == tasks.work.item((), {"item": "a", "seconds": 2})
    assert tasks.work.item(("a", 1), {}) != tasks.work.item(("b", 1), {})
    assert tasks.work.item(("a", 1), {}) == '["tests.contrib.tasks.work", {"item": "a"}]'


class Size:
    """A type that a program registers with kombu."""

    def __init__(self, size: int) -> None:
        self.size = size


register_type(Size, "size", lambda size: size.size, Size)

ARGUMENTS: dict[str, Any] = {
    "UUID": uuid.UUID(int=7),
    "datetime": dt.datetime(2026, 11, 25, 12, tzinfo=dt.UTC),
    "date": dt.date(2026, 11, 25),
    "time": dt.time(12, 30),
    "Decimal": decimal.Decimal("1.10"),
    "bytes": b"\xff\x00",
    "a registered type": Size(3),
    "nested": {"ids": [uuid.UUID(int=1), None], "n": 1.5},
}
"""Arguments that Celery's JSON carries."""


@for_each("kind", ARGUMENTS)
def test_each_argument_that_celery_carries_makes_an_item(kind: str, tasks: Any) -> None:
    """It is the same item in the program that sends it and in the worker."""
    (sent,) = loads(dumps([ARGUMENTS[kind]]))
    item = tasks.part.item((ARGUMENTS[kind],), {})
    assert tasks.part.item((sent,), {}) == item
    assert tasks.part.item(("other",), {}) != item
    assert item.startswith(f'["{tasks.part.name}", {{"item": ')


def test_an_argument_that_celery_does_not_carry_is_refused(tasks: Any) -> None:
    """The error says what can be done."""
    with pytest.raises(TypeError, match=r"part cannot .*Object of type object .*unique_on, .*register_type"):
        tasks.part.item((object(),), {})


def plain(order: str, carrier: str = "rail") -> None:
    """Be the body of a task."""


def bound(self: Any, order: str, carrier: str = "rail") -> None:
    """Be the body of a task with `bind`."""


@for_each(
    ("unique_on", "body", "match"),
    [
        (
            "order",
            plain,
            r"task shop.ship must be a list of names, not a str: write \['order'\]",
        ),
        (["ordr"], plain, "unique_on of task shop.ship names 'ordr'; the arguments are order, carrier"),
        (["self", "order"], bound, "names 'self'; the arguments are order, carrier"),
        (["o", "carrier", "c"], bound, "names 'o', 'c'; the arguments"),
    ],
)
def test_a_wrong_name_is_refused_when_the_task_is_made(
    unique_on: Any, body: Any, match: str, tasks: Any
) -> None:
    """That is before its first message."""
    options = {"base": tasks.Once, "name": "shop.ship", "seen": tasks.seen, "lazy": False, "shared": False}
    make = tasks.app.task(bind=body is bound, unique_on=unique_on, **options)
    with pytest.raises((TypeError, ValueError), match=match):
        assert make(body).name


def test_a_filter_of_asyncio_is_refused_when_the_task_is_made(tasks: Any) -> None:
    """Its claims would be coroutines."""
    seen = bloomredis.asyncio.BloomFilter.from_url("memory://", "seen", capacity=10, error_rate=0.1)
    make = tasks.app.task(base=tasks.Once, name="shop.ship", seen=seen, lazy=False, shared=False)
    with pytest.raises(TypeError, match=r"task shop.ship needs a bloomredis.BloomFilter, not a .*asyncio"):
        make(plain)


def test_calls_with_one_id_have_one_result(tasks: Any, any_server: Server) -> None:
    """While the body runs and after it, a call with the id of an earlier call gets that call's result."""
    with worker("ids"):
        first = tasks.work.apply_async(("item", 1.0), task_id="work-item")
        wait_until("the body runs", lambda: notes(tasks))
        again = tasks.work.apply_async(("item", 1.0), task_id="work-item")
        assert [first.get(timeout=30), again.get(timeout=30)] == ["item", "item"]
        wait_until("the broker is drained", lambda: is_drained(any_server), every=0.05)
        assert tasks.work.apply_async(("item", 1.0), task_id="work-item").get(timeout=30) == "item"
        wait_until("the broker is drained", lambda: is_drained(any_server), every=0.05)
        assert (first.state, first.get(timeout=30), len(notes(tasks))) == ("SUCCESS", "item", 2)


@pytest.mark.parametrize("what", ["operator", "process"])
def test_a_lost_filter_stops_a_worker(what: str, any_server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """Until an operator acknowledges the loss; its messages are sent again meanwhile.

    A process that replaces another one does not notice the loss either.
    """
    with filter_elsewhere(any_server, monkeypatch) as (tasks, seen), worker("lost", 1) as process:
        assert tasks.member.delay("a").get(timeout=30) is None
        lose(seen, "tasks", tasks.member.item(("a",), {}))
        before = calls(seen)
        tasks.member.delay("a")
        wait_until("the filter is asked", lambda: calls(seen) > before)
        assert tasks.notes.lrange("ended", 0, -1) == ["a"]
        if what == "process":
            assert kill_a_child(process.pid, 0)
        else:
            acknowledge(seen, "tasks", "--capacity", "10000", "--error-rate", "1e-6")
        wait_until("the body runs again", lambda: tasks.notes.llen("ended") == 2)


@contextmanager
def filter_elsewhere(broker: Server, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Any, Server]]:
    """The module of the tasks, and a server of its own for the filter of a worker."""
    with running(broker.binary) as seen:
        monkeypatch.setenv("BLOOMREDIS_TEST_SOCKET", broker.socket)
        monkeypatch.setenv("BLOOMREDIS_TEST_FILTER", seen.socket)
        from tests.contrib import tasks

        yield tasks, seen


LISTS: dict[str, Any] = {
    "chunks": lambda tasks, items: tasks.work.chunks([(item, 0) for item in items], len(items)),
    "starmap": lambda tasks, items: tasks.work.starmap([(item, 0) for item in items]),
    "map": lambda tasks, items: tasks.calls_another.map(items),
    "a body": lambda tasks, items: tasks.calls_another.si(items[1]),
}
"""Messages that carry calls of a task that runs once."""


@pytest.mark.parametrize("kind", LISTS)
def test_a_busy_item_in_the_body_of_another_task(kind: str, tasks: Any) -> None:
    """The message that carries it comes again until the item is done."""
    tasks.app.finalize()  # as a program that sends lists
    held = tasks.seen.claim(tasks.work.item(("busy", 0), {}), lease=2.0, renew=False)
    assert held
    expected = {"busy"} if kind == "a body" else {"a", "busy", "b"}

    def ended() -> set[str]:
        return {item for verb, item, _ in notes(tasks) if verb == "end"}

    with worker("lists"):
        LISTS[kind](tasks, ["a", "busy", "b"]).apply_async()
        wait_until("all have ended", lambda: ended() == expected, every=0.05)
    assert max(Counter(item for _, item, _ in notes(tasks)).values()) == 2  # a begin and an end


def test_a_task_that_is_replaced_is_not_done(tasks: Any, any_server: Server) -> None:
    """The other task does the work; the message, sent again, is replaced again."""
    with worker("replaced"):
        assert tasks.replaced.delay("a").get(timeout=30) == "a by another"
        assert not tasks.seen.contains(tasks.replaced.item(("a",), {}))
        assert tasks.replaced.delay("a").get(timeout=30).state == "done"
    assert tasks.notes.lrange("replaced", 0, -1) == ["a", "a"]


def test_a_coroutine_function_is_refused_when_the_task_is_made(tasks: Any) -> None:
    """Celery would take its coroutine for the result."""

    async def ship(order: str) -> None: ...

    with pytest.raises(TypeError, match=r"task shop.ship is a coroutine function"):
        tasks.app.task(base=tasks.Once, name="shop.ship", seen=tasks.seen, lazy=False, shared=False)(ship)


@pytest.mark.filterwarnings("error::RuntimeWarning")
def test_a_body_that_returns_a_coroutine_gives_the_item_back(tasks: Any) -> None:
    """Directly and with a message: the body has not run."""

    async def body(order: str) -> None: ...

    @tasks.app.task(base=tasks.Once, name="shop.later", seen=tasks.seen)
    def later(order: str) -> Any:
        return body(order)

    with pytest.raises(TypeError, match="given back"):
        later("a")
    assert isinstance(later.apply(("a",)).result, TypeError)
    assert tasks.seen.claim(later.item(("a",), {})).state == "claimed"


class Order(BaseModel):
    """A model with a default."""

    id: int
    carrier: str = "rail"


def test_the_item_of_a_model_has_its_validated_fields(tasks: Any) -> None:
    """As a dict, as a sender gives it, and as a model, in a direct call."""
    runs = []

    @tasks.app.task(base=tasks.Once, name="shop.model", seen=tasks.seen, pydantic=True)
    def ship(order: Order, other: Order | None = None) -> int:
        runs.append(order)
        return order.id

    assert ship(Order(id=7)) == 7
    for args in ((Order(id=7),), ({"id": 7},), ({"id": 7, "carrier": "rail"}, None)):
        assert ship(*args) == Skipped(ship.item(({"id": 7},), {}), "done", 0)
    assert ship.apply(({"id": 7, "carrier": "road"},)).get() == 7
    assert runs == [Order(id=7), Order(id=7, carrier="road")]


def test_a_task_without_a_filter_says_so(tasks: Any) -> None:
    """The error comes with the first call."""

    @tasks.app.task(base=tasks.Once)
    def bare() -> None: ...

    with pytest.raises(ImproperlyConfigured, match="seen="):
        bare()


def test_the_example_of_the_page_runs(any_server: Server) -> None:
    """The task of the page ships an order once."""
    (block,) = [each for each in on_page(ROOT / "docs" / "celery.md") if each.language == "python"]
    names: dict[str, Any] = {"__name__": "shop"}
    text = re.sub('(broker|backend)="[^"]*"', rf'\1="redis+socket://{any_server.socket}"', block.text)
    text = re.sub("redis://localhost", any_server.url, text)
    exec(text, names)  # noqa: S102 - the project's own page
    assert names["ship"].apply(("order-1", "rail")).get() == "order-1 by rail"
    assert names["ship"].apply(("order-1", "road")).get().state == "done"
