"""What an item is the same for: the calls, requests and messages of an adapter that share one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import dramatiq
import pytest
from celery import Celery
from dramatiq.brokers.stub import StubBroker
from pydantic import BaseModel

from bloomredis import BloomFilter
from bloomredis.contrib import celery
from bloomredis.contrib import dramatiq as dramatiq_adapter
from bloomredis.contrib._items import call_item
from tests.support.servers import Server
from tests.support.values import for_each

SIZE: Final[dict[str, Any]] = {"capacity": 1000, "error_rate": 1e-9}
Runs = list[tuple[str, str]]
"""The name of the work and the key of each body that ran."""


def of_celery(server: Server, works: dict[str, list[str]], *, bare: bool) -> Runs:
    """Call tasks of Celery."""
    seen, runs = BloomFilter.from_url(server.url, "seen", **SIZE), Runs()
    app = Celery("shop")

    class ByOrder(celery.Once):
        abstract = True

        def item(self, args: Any, kwargs: Any) -> str:
            return str(args[0])

    for name, keys in works.items():

        def body(order: str, name: str = name) -> None:
            runs.append((name, order))

        task = app.task(base=ByOrder, seen=seen, name=name, bare=bare)(body)
        for key in keys:
            task.apply((key,))
    return runs


def of_dramatiq(server: Server, works: dict[str, list[str]], *, bare: bool) -> Runs:
    """Send messages to actors of Dramatiq."""
    broker, runs = StubBroker(), Runs()
    broker.add_middleware(dramatiq_adapter.Once(BloomFilter.from_url(server.url, "seen", **SIZE), bare=bare))
    broker.emit_after("process_boot")
    worker = dramatiq.Worker(broker, worker_timeout=10, worker_threads=1)
    worker.start()
    for name, keys in works.items():
        actor: Any = dramatiq.actor(
            lambda order, name=name: runs.append((name, order)),
            actor_name=name,
            broker=broker,
            once=lambda order, **_: order,
        )
        for key in keys:
            actor.send(key)
        broker.join("default", timeout=30_000)
    worker.stop()
    return runs


ADAPTERS: Final[dict[str, Callable[..., Runs]]] = {
    "Celery: the task's name": of_celery,
    "Dramatiq: the actor's name": of_dramatiq,
}


@pytest.mark.parametrize("adapter", ADAPTERS)
def test_two_works_on_one_filter_share_no_item(adapter: str, any_server: Server) -> None:
    """Each runs once for a key; with `bare` only one of them does."""
    works = {"ship": ["7", "7", "8"], "bill": ["7", "9", "9"]}
    runs = [("ship", "7"), ("ship", "8"), ("bill", "7"), ("bill", "9")]
    assert ADAPTERS[adapter](any_server, works, bare=False) == runs
    any_server.empty()
    assert ADAPTERS[adapter](any_server, works, bare=True) == [each for each in runs if each != ("bill", "7")]


# -- the item of a call


class Order(BaseModel):
    """A model with a default."""

    id: int
    carrier: str = "rail"


def ship(order: str, carrier: str = "rail") -> None: ...


async def ship_later(order: str, carrier: str = "rail") -> None: ...


def ship_by_name(*, order: str, carrier: str = "rail") -> None: ...


def ship_all(*orders: str, **options: str) -> None: ...


def ship_model(order: Order, other: Order | None = None) -> None: ...


CALLS: Final[dict[str, tuple[Callable[..., object], list[tuple[tuple[Any, ...], dict[str, Any]]]]]] = {
    name: (function, [(("7",), {}), (("7", "rail"), {}), ((), {"carrier": "rail", "order": "7"})])
    for name, function in {"a function": ship, "a coroutine function": ship_later}.items()
} | {
    "keywords": (ship_by_name, [((), {"order": "7"}), ((), {"carrier": "rail", "order": "7"})]),
    "any arguments": (ship_all, [(("a", "b"), {"x": "1", "y": "2"}), (("a", "b"), {"y": "2", "x": "1"})]),
    "a model": (
        ship_model,
        [((Order(id=7),), {}), (({"id": 7},), {}), ((), {"order": {"id": 7, "carrier": "rail"}})],
    ),
}
"""Functions, and calls of each that are one call."""


@for_each("kind", CALLS)
def test_calls_with_the_same_arguments_are_one_item(kind: str) -> None:
    """However they are given."""
    function, calls = CALLS[kind]
    items = {call_item("ship", function, *call, advice="") for call in calls}
    assert len(items) == 1
    assert call_item("bill", function, *calls[0], advice="") not in items


def test_the_item_of_a_call_is_frozen() -> None:
    """It is JSON; the name is left out of a bare one, and `only` names arguments."""
    call: Any = ("ship", ship, ("7",), {})
    assert call_item(*call, advice="") == '["ship", {"carrier": "rail", "order": "7"}]'
    assert call_item(*call, only=["order"], advice="") == '["ship", {"order": "7"}]'
    assert call_item(*call, bare=True, advice="") == '{"carrier": "rail", "order": "7"}'


def test_an_argument_without_json_is_refused() -> None:
    """The error says what can be done."""
    with pytest.raises(TypeError, match=r"an argument of ship cannot be part of its item: .*give a function"):
        call_item("ship", ship, (object(),), {}, advice="give a function")
