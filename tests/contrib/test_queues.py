"""The programs of docs/queues.md, with the queues' own workers."""

from __future__ import annotations

import os
import re
import signal
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from bloomredis import WorkItem
from tests.contrib.recipes import RECIPES, Recipe, Shop, kill
from tests.contrib.violence import KEPT, acknowledge, calls, descendants, lose, restart
from tests.support.servers import Server, running
from tests.support.waiting import wait_until

ORDERS = [f"order-{number}" for number in range(16)]


def in_hand(shop: Shop, process: int) -> list[str]:
    """Return the orders that the processes of a worker have begun and not ended."""
    notes: Any = shop.notes
    ended = Counter(notes.lrange("ended", 0, -1))
    begun = [note.split() for note in notes.lrange("begun", 0, -1)]
    return [order for order, by in begun if by == str(process) and not ended[order]]


def busy_process(shop: Shop) -> int:
    """Return a process that has begun an order; 0 before two orders are begun."""
    notes: Any = shop.notes
    begun = [int(note.split()[1]) for note in notes.lrange("begun", 0, -1)]
    return begun[-1] if len(begun) >= 2 else 0


@pytest.mark.parametrize("recipe", RECIPES.values(), ids=RECIPES)
def test_no_order_is_lost_or_delivered_twice(recipe: Recipe, any_server: Server, tmp_path: Path) -> None:
    """Each order is sent twice; a worker is killed, and the filter's server is away for a second."""
    with running(any_server.binary, *KEPT) as seen:
        shop = Shop(recipe, tmp_path, any_server, seen)
        with shop.worker() as first, shop.worker() as second:
            shop.send(ORDERS * 2)
            wait_until("a worker is in the middle", lambda: busy_process(shop))
            process = busy_process(shop)
            if process in (first.pid, second.pid):
                kill(first if process == first.pid else second)
            else:
                os.kill(process, signal.SIGKILL)
            cut = in_hand(shop, process)
            notes: Any = shop.notes
            restart(seen, meanwhile=lambda: notes.set("go", 1))
            wait_until("all have ended", lambda: is_complete(shop), every=0.5)
        ended = Counter(notes.lrange("ended", 0, -1))
        begun = Counter(note.split()[0] for note in notes.lrange("begun", 0, -1))
    assert set(ended) == set(ORDERS), shop.log()
    assert {order for order, times in (ended | begun).items() if times > 1} <= set(cut)


@pytest.mark.parametrize("name", ["RQ", "arq", "taskiq"])
def test_the_result_of_a_done_job_says_so(name: str, any_server: Server, tmp_path: Path) -> None:
    """It is `Skipped`; taskiq makes it a dict."""
    recipe = RECIPES[name]
    shop = Shop(recipe, tmp_path, any_server, any_server, recipe.compositions["list of results"])
    notes: Any = shop.notes
    notes.set("go", 1)
    with shop.worker():
        shop.compose(["a"])
        shop.compose(["a"])
    first, second = filter(None, notes.lrange("results", 0, -1))
    assert "done" not in first
    assert re.search("'state': 'done'" if name == "taskiq" else r"Skipped\(.*state='done'", second)


@pytest.mark.parametrize("recipe", RECIPES.values(), ids=RECIPES)
def test_a_lost_filter_stops_the_workers(recipe: Recipe, any_server: Server, tmp_path: Path) -> None:
    """Until an operator acknowledges the loss; each job of RQ finds no filter before."""
    with running(any_server.binary) as seen:
        shop = Shop(recipe, tmp_path, any_server, seen)
        notes: Any = shop.notes
        notes.set("go", 1)
        with shop.worker():
            shop.send(["a"])
            wait_until("it is done", lambda: notes.llen("ended"))
            lose(seen, "shipped", WorkItem("ship", "a"))
            before = calls(seen)
            shop.send(["a"])
            wait_until("the filter is asked", lambda: calls(seen) > before)
            if recipe.name == "RQ":
                assert notes.llen("ended") == 1
                assert not seen.client().exists("shipped")
                shop.create()
                wait_until("it is done again", lambda: notes.llen("ended") == 2)
                return
            assert notes.llen("ended") == 1
            acknowledge(seen, "shipped", "--capacity", "1000000", "--error-rate", "1e-6")
            shop.send(["a"])
            wait_until("it is done again", lambda: notes.llen("ended") == 2)


@pytest.mark.parametrize("recipe", RECIPES.values(), ids=RECIPES)
def test_a_body_in_flight_at_a_loss_runs_again(recipe: Recipe, any_server: Server, tmp_path: Path) -> None:
    """Its commit fails, so its job comes again, and runs once the loss is acknowledged."""
    with running(any_server.binary) as seen:
        shop = Shop(recipe, tmp_path, any_server, seen)
        notes: Any = shop.notes
        with shop.worker():
            shop.send(["a"])
            wait_until("it has begun", lambda: notes.llen("begun"))
            with seen.client() as client:
                client.flushall()
            notes.set("go", 1)
            wait_until("it has ended", lambda: notes.llen("ended"))
            if recipe.name == "RQ":
                shop.create()
            else:
                acknowledge(seen, "shipped", "--capacity", "1000000", "--error-rate", "1e-6")
            wait_until("it has ended again", lambda: notes.llen("ended") == 2)
            lose(seen, "shipped", WorkItem("ship", "a"))
    assert notes.lrange("ended", 0, -1) == ["a", "a"]


@pytest.mark.long
def test_a_job_of_rq_outlives_all_its_processes(any_server: Server, tmp_path: Path) -> None:
    """Worker, job and scheduler are killed, as with their container; another worker runs the job."""
    shop = Shop(RECIPES["RQ"], tmp_path, any_server, any_server)
    notes: Any = shop.notes
    with shop.worker() as first:
        shop.send(["a"])
        wait_until("the job runs", lambda: notes.llen("begun"))
        for process in (*descendants(first.pid), first.pid):
            os.kill(process, signal.SIGKILL)
        first.wait()
    notes.set("go", 1)
    with shop.worker():
        wait_until("the job has ended", lambda: notes.llen("ended"), every=0.5)


def is_complete(shop: Shop) -> bool:
    """Return whether each order has ended; if the queue needs it, send another message first."""
    if shop.recipe.looks_with_new:
        shop.send(ORDERS[:1])
    notes: Any = shop.notes
    return set(notes.lrange("ended", 0, -1)) == set(ORDERS)
