"""The programs of docs/queues.md, with the queues' own workers."""

from __future__ import annotations

import os
import signal
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.contrib.recipes import RECIPES, Recipe, Shop, kill
from tests.contrib.violence import KEPT, restart
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


def is_complete(shop: Shop) -> bool:
    """Return whether each order has ended; if the queue needs it, send another message first."""
    if shop.recipe.looks_with_new:
        shop.send(ORDERS[:1])
    notes: Any = shop.notes
    return set(notes.lrange("ended", 0, -1)) == set(ORDERS)
