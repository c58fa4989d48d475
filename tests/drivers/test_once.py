"""Functions that run once for an item: the items of named work, and functions whose body runs later."""

from __future__ import annotations

import asyncio
import functools
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import redis

import bloomredis.asyncio
from bloomredis import BloomFilter, Skipped, WorkItem, compat, keyed
from tests.support.inside import inside
from tests.support.servers import Server
from tests.support.values import for_each
from tests.support.vectors import Row, vectors

SIZE: dict[str, Any] = {"capacity": 1000, "error_rate": 1e-9}


@asynccontextmanager
async def made(server: Server) -> AsyncIterator[bloomredis.asyncio.BloomFilter]:
    async with redis.asyncio.Redis(unix_socket_path=server.socket) as client:
        yield bloomredis.asyncio.BloomFilter(client, "seen", **SIZE)


class Caller:
    """Makes functions that run once, and waits for their calls."""

    def __init__(self, bloom: Any, client: Any, *, wait: Any = None, **options: Any) -> None:
        self.seen = bloom(client, "seen", **SIZE | options)
        self.raw = getattr(self.seen, "_filter", self.seen)
        self._wait = wait or bloom.wait
        self.is_asyncio = self.raw is not self.seen

    def once(self, name: str | None, function: Callable[..., Any], **options: Any) -> Any:
        """Return a function that runs once, as a plain function; with `item`."""
        given = function
        if self.is_asyncio:

            @functools.wraps(function)
            async def given(*args: Any, **kwargs: Any) -> Any:
                return function(*args, **kwargs)

        work = self.raw.once(name, **options)(given)

        def call(*args: Any, **kwargs: Any) -> Any:
            return self._wait(work(*args, **kwargs))

        call.item = work.item  # type: ignore[attr-defined]  # as `once` does
        return call


def ship(order: Any, carrier: str = "rail") -> str:
    return f"{order} by {carrier}"


def bill(order: Any) -> str:
    return f"{order} billed"


def test_two_names_share_no_item(bloom: Any, client: redis.Redis) -> None:
    """Each function runs once for an item, and the bare item is free."""
    caller = Caller(bloom, client)
    ships, bills = caller.once("ship", ship), caller.once("bill", bill)
    assert ships("order-1") == "order-1 by rail"
    assert bills("order-1") == "order-1 billed"
    assert ships("order-1") == bills("order-1") == Skipped("order-1", "done", 0)
    assert caller.seen.contains_many(["order-1", ships.item("order-1"), bills.item("order-1")]) == [
        False, True, True,
    ]  # fmt: skip


KINDS: dict[str, dict[str, Any]] = {
    "BloomFilter": {"layout": "classic"},
    "ScalingBloomFilter": {},
    "RotatingBloomFilter": {"window": 3600},
    "CountingBloomFilter": {},
    "ShardedBloomFilter": {"shards": 2},
}


@for_each("kind", KINDS)
def test_each_kind_of_filter_takes_names(kind: str, bloom: Any, client: redis.Redis) -> None:
    """Claims and tests of all of them know the items."""
    seen = bloom(client, kind, kind=kind, **SIZE, **KINDS[kind])
    caller = Caller(lambda *_, **__: seen, client, wait=bloom.wait)
    ships, bills = caller.once("ship", ship), caller.once("bill", bill)
    assert (ships("1"), bills("1"), ships("1").state) == ("1 by rail", "1 billed", "done")
    assert seen.contains_many([ships.item("1"), bills.item("2"), "1"]) == [True, False, False]
    assert seen.add_many([bills.item("1"), bills.item("2")]) == [False, True]


def test_without_a_name_the_value_is_the_item(bloom: Any, client: redis.Redis) -> None:
    """`add` of it and a call are the same."""
    caller = Caller(bloom, client)
    ships = caller.once(None, ship)
    assert ships("order-1") == "order-1 by rail"
    assert not caller.seen.add("order-1")
    assert caller.seen.contains(ships.item("order-1"))


def test_the_item_of_a_call_is_an_item(bloom: Any, client: redis.Redis) -> None:
    """`contains`, `add` and `claim` take it, also in batches; a call of an added one is skipped."""
    caller = Caller(bloom, client)
    ships = caller.once("ship", ship)
    item = ships.item("order-1", carrier="road")
    assert not caller.seen.contains(item)
    held = caller.seen.claim(item)
    assert ships("order-1").state == "busy"
    bloom.wait(held.release())
    assert caller.seen.add(item)
    assert caller.seen.add_many([item, ships.item("order-2")]) == [False, True]
    assert not ships("order-1")
    assert not ships("order-2")


def test_the_value_is_encoded_by_the_filter(bloom: Any, client: redis.Redis) -> None:
    """With `encode=` it may be any object, and `Skipped` and `on_busy` have it as it is."""
    caller = Caller(bloom, client, encode=lambda order: order.id.encode())
    order, busy = SimpleNamespace(id="7"), list[Any]()
    ships = caller.once("ship", ship, on_busy=lambda value, left: busy.append(value))
    held = caller.seen.claim(ships.item(order))
    assert ships(order) is None
    assert busy == [order]
    bloom.wait(held.commit())
    assert ships(order).item is order
    assert caller.seen.contains(ships.item(SimpleNamespace(id="7")))
    assert not caller.seen.contains(order)


def stored(filter_: Any, item: Any) -> bytes:
    found: bytes = inside(filter_).codec.encode(item)
    return found


def value_of(case: Row) -> Any:
    value = case["value"]
    return bytes.fromhex(value["hex"]) if isinstance(value, dict) else value


@for_each("case", vectors("once")["items"])
def test_the_bytes_of_an_item(case: Row, any_client: redis.Redis) -> None:
    """They are frozen, and the same whoever writes them."""
    seen = BloomFilter(any_client, "seen", **SIZE)
    work = seen.once(case["name"], key=lambda value: value)(bill)
    expected = bytes.fromhex(case["hex"])
    assert stored(seen, work.item(value_of(case))) == expected
    work(value_of(case))
    assert seen.contains(expected)


@for_each("case", vectors("once")["keyed"])
def test_the_bytes_of_an_item_with_a_secret(case: Row, any_client: redis.Redis) -> None:
    """The value is encoded, the name is not."""
    seen = BloomFilter(any_client, "seen", encode=keyed(case["secret"]), **SIZE)
    work = seen.once(case["name"])(bill)
    assert stored(seen, work.item(case["value"])) == bytes.fromhex(case["hex"])


HALVES: dict[str, Any] = {
    "sync": lambda **options: BloomFilter(redis.Redis(port=1), "seen", **options or SIZE),
    "asyncio": lambda **options: bloomredis.asyncio.BloomFilter(
        redis.asyncio.Redis(port=1), "seen", **options or SIZE
    ),
}


@for_each(
    ("half", "name", "error", "match"),
    [
        (half, *case)
        for half in HALVES
        for case in (
            ("", ValueError, "must not be empty"),
            ("a\0b", ValueError, "must not contain a NUL"),
            ("\ud800", ValueError, "valid Unicode"),
            (7, TypeError, "name must be a str"),
            (ship, TypeError, r'@seen\.once\("ship"\)'),
        )
    ],
)
def test_a_wrong_name_is_refused(half: str, name: Any, error: type[Exception], match: str) -> None:
    """Before any I/O."""
    with pytest.raises(error, match=match):
        HALVES[half]().once(name)


def test_the_layout_of_another_system_takes_no_name(bloom: Any, client: redis.Redis) -> None:
    """Its items are those of the other system; `once(None)` marks them."""
    caller = Caller(bloom, client, layout=compat.go_zero(1024), capacity=None, error_rate=None)
    with pytest.raises(ValueError, match=r"once\(None\)"):
        caller.once("ship", ship)
    with pytest.raises(ValueError, match=r"once\(None\)"):
        caller.seen.add(WorkItem("ship", "order-1"))
    assert caller.once(None, bill)("order-1") == "order-1 billed"
    assert caller.seen.contains("order-1")


class Shop:
    """An object with methods."""

    def __init__(self, seen: Any) -> None:
        self.shipped: list[str] = []
        type(self).ship = seen.once("ship")(Shop.shipping)

    def shipping(self, order: str, carrier: str = "rail") -> str:
        self.shipped.append(order)
        return carrier

    ship: Any = None


class AsyncShop:
    """An object with asynchronous methods."""

    def __init__(self, seen: Any) -> None:
        self.shipped: list[str] = []
        type(self).ship = seen.once("ship")(AsyncShop.shipping)

    async def shipping(self, order: str, carrier: str = "rail") -> str:
        self.shipped.append(order)
        return carrier

    ship: Any = None


def test_of_a_method_the_second_argument_counts(bloom: Any, client: redis.Redis) -> None:
    """Two objects share the items, and `item` of a bound method needs no `self`."""
    caller = Caller(bloom, client)
    kind: Any = AsyncShop if caller.is_asyncio else Shop
    shop, other = kind(caller.raw), kind(caller.raw)
    assert bloom.wait(shop.ship("7")) == "rail"
    assert bloom.wait(other.ship(order="7", carrier="road")) == Skipped("7", "done", 0)
    assert bloom.wait(other.ship("rail")) == "rail"
    assert (shop.shipped, other.shipped) == (["7"], ["rail"])
    items = [
        shop.ship.item("7", "x"),
        kind.ship.item(shop, "7"),
        kind.ship.item(None, "7"),
        shop.ship.item(order="7"),
    ]
    assert items == [WorkItem("ship", "7")] * 4


def test_a_class_method_counts_its_second_argument(any_client: redis.Redis) -> None:
    """Its first one is the class."""
    seen = BloomFilter(any_client, "seen", **SIZE)

    class Local:
        @classmethod
        @seen.once("count")
        def count(cls, item: str) -> str:
            return f"{cls.__name__} {item}"

    count: Any = Local.count
    assert count("a") == "Local a"
    assert count("b") == "Local b"
    assert count("a") == Skipped("a", "done", 0)
    assert count.item("a") == WorkItem("count", "a")


def test_a_local_function_has_no_self(any_client: redis.Redis) -> None:
    """A parameter of that name is its first argument."""
    seen = BloomFilter(any_client, "seen", **SIZE)

    @seen.once("weigh")
    def weigh(self: str, other: str = "x") -> str:
        return self + other

    assert weigh("a", "b") == "ab"
    assert weigh.item("a", "c") == WorkItem("weigh", "a")


def test_a_method_without_an_argument_has_no_item(any_client: redis.Redis) -> None:
    """The call is refused before anything is sent."""

    class Job:
        @BloomFilter(any_client, "seen", **SIZE).once("run")
        def run(self) -> None: ...

    with pytest.raises(TypeError, match="the first argument as the item"):
        Job().run()


# -- two functions of one name


def twice(function: Callable[..., Any], half: str) -> Any:
    """Return the function, or a coroutine function for it."""
    if half == "sync":
        return function

    @functools.wraps(function)
    async def waiting(*args: Any) -> Any:
        return function(*args)

    return waiting


def local(result: str) -> Callable[[str], str]:
    def of(order: str) -> str:
        return result

    return of


def other_local() -> Callable[[str], str]:
    def of(order: str) -> str:
        return order

    return of


@for_each(
    ("half", "first", "second"),
    [
        (half, *pair)
        for half in HALVES
        for pair in (
            (ship, bill),
            (lambda order: order, lambda order: order + "x"),
            (local("a"), other_local()),
            (functools.partial(ship, carrier="road"), bill),
            (Shop.shipping, ship),
        )
    ],
)
def test_two_functions_of_one_name_are_refused(half: str, first: Any, second: Any) -> None:
    """They would share their items; under two names, on two filters, or without a name they may be."""
    seen = HALVES[half]()
    seen.once("ship")(twice(first, half))
    with pytest.raises(ValueError, match="'ship': another function"):
        seen.once("ship")(twice(second, half))
    seen.once("bill")(twice(second, half))
    HALVES[half]().once("ship")(twice(second, half))
    seen.once(None)(twice(first, half))
    seen.once(None)(twice(second, half))


@for_each(
    ("half", "first", "second"),
    [
        (half, *pair)
        for half in HALVES
        for pair in ((ship, ship), (local("a"), local("b")), (functools.partial(ship, "a"), ship))
    ],
)
def test_one_function_may_be_decorated_again(half: str, first: Any, second: Any) -> None:
    """As after a reload, or in a factory."""
    seen = HALVES[half]()
    seen.once("ship")(twice(first, half))
    seen.once("ship")(twice(second, half))


def test_the_main_module_is_its_file(monkeypatch: pytest.MonkeyPatch) -> None:
    """A file that is run and imported too has each function twice; another file's is another function."""
    found = {}
    for name, file in (("__main__", "/app/jobs.py"), ("jobs", "/app/jobs.py"), ("mail", "/app/mail.py")):
        module = ModuleType(name)
        module.__file__ = file
        monkeypatch.setitem(sys.modules, name, module)
        exec("def send(order): return order", module.__dict__)  # noqa: S102 - a module of its own
        found[name] = module.__dict__["send"]
    seen = HALVES["sync"]()
    seen.once("send")(found["__main__"])
    seen.once("send")(found["jobs"])
    with pytest.raises(ValueError, match="another function"):
        seen.once("send")(found["mail"])


# -- functions whose body runs later


async def later(order: str) -> str:
    raise ConnectionError(order)


def behind(order: str) -> Any:
    return later(order)


class Later:
    """A callable object whose body runs later."""

    def __call__(self, order: str) -> Any:
        return later(order)


def lines(order: str) -> Any:
    def each() -> Iterator[str]:
        yield order

    return each()


def async_lines(order: str) -> Any:
    async def each() -> AsyncIterator[str]:
        yield order

    return each()


LATER: dict[str, Callable[[str], Any]] = {
    "a coroutine": behind,
    "a coroutine of an object": Later(),
    "a coroutine of a lambda": lambda order: later(order),  # noqa: PLW0108 - tested on purpose
    "a coroutine of a partial function": functools.partial(behind),
    "a generator": lines,
    "an asynchronous generator": async_lines,
}


@for_each("kind", LATER)
@pytest.mark.filterwarnings("error::RuntimeWarning")
def test_a_result_whose_body_has_yet_to_run(kind: str, bloom: Any, client: redis.Redis) -> None:
    """The call fails, its coroutine is closed, and the item is free."""
    caller = Caller(bloom, client)
    function = LATER[kind]
    given: Any = function if caller.is_asyncio else None
    if caller.is_asyncio:

        async def given(order: str) -> Any:
            return function(order)

    work = caller.raw.once("later")(given or function)
    for _ in range(2):
        with pytest.raises(TypeError, match="given back"):
            bloom.wait(work("7"))
    assert not caller.seen.contains(work.item("7"))
    assert caller.seen.claim(work.item("7")).state == "claimed"


def test_a_returned_task_goes_on(any_server: Server) -> None:
    """It is no coroutine of this call, so it is not closed."""

    async def body(order: str) -> str:
        await asyncio.sleep(0)
        return order

    async def main() -> None:
        async with made(any_server) as seen:
            tasks: list[asyncio.Task[str]] = []

            async def begin(order: str) -> Awaitable[str]:
                tasks.append(asyncio.create_task(body(order)))
                return tasks[0]

            work = seen.once("begin")(begin)
            with pytest.raises(TypeError, match="given back"):
                await work("7")
            assert await tasks[0] == "7"
            assert not await seen.contains(work.item("7"))

    asyncio.run(main())


class AsyncCallable:
    """A callable object that is asynchronous."""

    async def __call__(self, order: str) -> str:
        return order


async def echo(order: str) -> str:
    return order


@functools.wraps(echo)
def wrapping(order: str) -> Any:
    return echo(order)


@for_each("function", [AsyncCallable(), wrapping, functools.partial(echo), echo])
def test_asynchronous_functions_of_all_kinds_run(function: Any, any_server: Server) -> None:
    """With a filter of asyncio, although the function may be a plain one around a coroutine function."""

    async def main() -> list[Any]:
        async with made(any_server) as seen:
            work = seen.once("echo", key=lambda order: order)(function)
            return [await work("7"), await work("7")]

    assert asyncio.run(main()) == ["7", Skipped("7", "done", 0)]


def test_an_asynchronous_object_is_refused() -> None:
    """By a filter of `bloomredis`, when it is decorated."""
    with pytest.raises(TypeError, match=r"bloomredis\.asyncio"):
        HALVES["sync"]().once("echo")(AsyncCallable())


def test_skipped_is_false() -> None:
    """So `if ship(order)` asks whether the work was done now."""
    assert not Skipped("order-1", "done", 0)
