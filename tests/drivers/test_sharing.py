"""Threads, forks, pickles and the caller's own pipelines."""

from __future__ import annotations

import asyncio
import multiprocessing
import pickle
import subprocess
import sys
from collections.abc import Sequence
from functools import partial
from typing import Any

import pytest
import redis
import redis.asyncio

import bloomredis.asyncio
from bloomredis import BloomFilter, FilterLostError
from tests.support.racing import race_processes, race_threads, winners
from tests.support.servers import Server

ITEMS = [f"https://example.org/page/{i}" for i in range(3000)]


def make(client: Any, **options: Any) -> BloomFilter:
    return BloomFilter(client, "seen", capacity=100_000, error_rate=1e-9, **options)


def test_coalescing_threads_have_one_winner_an_item(client: redis.Redis) -> None:
    """Threads that carry each other's calls race as fairly as others."""
    f = make(client, coalesce=True)
    items = ITEMS[:300]
    told = race_threads(lambda _: [f.add(item) for item in items], 16)
    assert winners(told, items) == {1: len(items)}
    assert all(f.contains_many(items))


def test_coalescing_threads_share_round_trips(server: Server) -> None:
    """Fewer script calls than adds, and batches among them."""
    with server.client() as client:
        f = make(client, coalesce=True)
        f.reserve()
        client.config_resetstat()
        told = race_threads(
            lambda w: [*(f.add(f"{w}-{i}") for i in range(100)), *f.add_many([f"{w}", f"{w}"])], 16
        )
        assert [sum(answers) for answers in told] == [101] * 16
        assert client.info("commandstats")["cmdstat_evalsha"]["calls"] < 1000


def test_coalescing_threads_get_their_own_errors(client: redis.Redis) -> None:
    """A bad item fails alone; a lost filter fails all, each with its own error."""
    f = make(client, coalesce=True)
    f.reserve()

    def add(worker: int) -> list[bool]:
        if worker == 0:
            with pytest.raises(TypeError):
                f.add(1.5)  # type: ignore[arg-type]  # that is the point
            return [True]
        return [f.add(f"{worker}")]

    assert race_threads(add, 8) == [[True]] * 8
    client.delete("seen")
    errors: list[FilterLostError] = []

    def lose(_: int) -> list[bool]:
        with pytest.raises(FilterLostError) as caught:
            f.add("x")
        errors.append(caught.value)
        return []

    race_threads(lose, 8)
    assert len({id(error) for error in errors}) == 8


_INTERRUPTED = """
import _thread, sys, threading, time, redis
from bloomredis import BloomFilter
client = redis.Redis(unix_socket_path=sys.argv[1])
f = BloomFilter(client, "int", capacity=1000, error_rate=0.01, coalesce=True)
f.reserve()
stop = threading.Event()
def work(worker):
    i = 0
    while not stop.is_set():
        f.add(f"{worker}-{i}")
        i += 1
threads = [threading.Thread(target=work, args=(worker,)) for worker in range(6)]
for thread in threads:
    thread.start()
for round_ in range(20):
    timer = threading.Timer(0.01, _thread.interrupt_main)
    timer.start()
    until = time.monotonic() + 2  # Python swallows an interrupt that comes in a destructor
    try:
        while time.monotonic() < until:
            f.add(f"main-{round_}-{time.monotonic()}")
    except KeyboardInterrupt:
        pass
    timer.join()
stop.set()
for thread in threads:
    thread.join()
f.add("end")
print("all ended")
"""


def test_ctrl_c_in_one_thread_leaves_no_other_waiting(any_server: Server) -> None:
    """A thread that is interrupted in add() lets those that rely on it go on."""
    done = subprocess.run(
        [sys.executable, "-c", _INTERRUPTED, any_server.socket],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.stdout == "all ended\n", done.stderr


def adds_every_way(url: str, items: Sequence[str], worker: int, *, name: str) -> list[bool]:
    """Add all items: by threads of this process, or by its asyncio tasks, as the worker's number says."""
    if worker % 2:
        return asyncio.run(_adds_with_tasks(url, items, name))
    with redis.Redis.from_url(url) as client:
        f = BloomFilter(client, name, capacity=100_000, error_rate=1e-9, coalesce=bool(worker % 4))
        told = race_threads(lambda _: [f.add(item) for item in items], 4)
    return [any(answers) for answers in zip(*told, strict=True) if _at_most_one(answers)]


async def _adds_with_tasks(url: str, items: Sequence[str], name: str) -> list[bool]:
    async with redis.asyncio.Redis.from_url(url) as client:
        f = bloomredis.asyncio.BloomFilter(client, name, capacity=100_000, error_rate=1e-9)

        async def adds() -> list[bool]:
            return [await f.add(item) for item in items]

        told = await asyncio.gather(*(adds() for _ in range(8)))
    return [any(answers) for answers in zip(*told, strict=True) if _at_most_one(answers)]


def _at_most_one(answers: Sequence[bool]) -> bool:
    assert sum(answers) <= 1
    return True


def test_threads_tasks_and_processes_race_fairly(server: Server) -> None:
    """Mixed on one filter, they have one winner for every item."""
    told = race_processes(partial(adds_every_way, name="mixed"), server.url, ITEMS, 4)
    assert winners(told, ITEMS) == {1: len(ITEMS)}


def _add_in_child(f: BloomFilter, items: Sequence[str], told: Any) -> None:
    told.put(f.add_many(items))


@pytest.mark.parametrize("coalesce", [True, False])
def test_a_forked_child_uses_the_filter(any_server: Server, coalesce: bool) -> None:  # noqa: FBT001 - a parameter of the test
    """Parent and children that inherited the filter have one winner an item."""
    with any_server.client() as client:
        client.delete("seen")
        f = make(client, coalesce=coalesce)
        f.add("warm")
        fork = multiprocessing.get_context("fork")
        told = fork.Queue()
        children = [fork.Process(target=_add_in_child, args=(f, ITEMS, told)) for _ in range(3)]
        for child in children:
            child.start()
        answers = [f.add_many(ITEMS), *(told.get(timeout=60) for _ in children)]
        for child in children:
            child.join()
    assert winners(answers, ITEMS) == {1: len(ITEMS)}


@pytest.mark.parametrize("cls", [BloomFilter, bloomredis.asyncio.BloomFilter])
def test_a_filter_pickles_without_its_client(any_server: Server, cls: Any) -> None:
    """The copy says that it needs a client, and works with one."""
    module = redis if cls is BloomFilter else redis.asyncio
    f = cls(module.Redis(unix_socket_path=any_server.socket), "pickled", capacity=100, error_rate=0.01)
    copy = pickle.loads(pickle.dumps(f))  # noqa: S301 - its own bytes
    with any_server.client() as client:
        if cls is BloomFilter:
            with pytest.raises(RuntimeError, match="with_client"):
                copy.add("a")
            client.delete("pickled")
            assert copy.with_client(client).add("a")
            assert not f.add("a")
    assert copy.name == "pickled"


def test_a_pickled_filter_still_notices_a_loss(any_server: Server) -> None:
    """What it knew of the stored filter goes along."""
    with any_server.client() as client:
        f = make(client)
        f.add("a")
        copy = pickle.loads(pickle.dumps(f)).with_client(client)  # noqa: S301 - its own bytes
        client.delete("seen")
        with pytest.raises(FilterLostError):
            copy.add("a")


@pytest.mark.parametrize("transaction", [True, False])
def test_a_pipeline_after_script_flush(client: redis.Redis, transaction: bool) -> None:  # noqa: FBT001 - a parameter of the test
    """1,000 queued adds give 1,000 right answers on a server that knows no script, every time."""
    f = make(client)
    f.reserve()
    pipe = client.pipeline(transaction=transaction)
    for round_ in range(2):
        client.script_flush()
        for i in range(1000):
            f.queue_add(pipe, f"{round_}-{i // 2}")
        pipe.set("other", "x")
        f.queue_contains(pipe, f"{round_}-0")
        f.queue_contains(pipe, "absent")
        assert pipe.execute() == [*[1, 0] * 500, True, 1, 0]
    assert f.info().count == 1000


def test_pipelines_share_lanes(client: redis.Redis) -> None:
    """Receipts are bounded by the longest pipeline, not by the number of calls."""
    f = make(client)
    f.reserve()
    for round_ in range(5):
        pipe = client.pipeline()
        for i in range(10):
            f.queue_add(pipe, f"{round_}-{i}")
        pipe.execute()
        del pipe
    assert client.dbsize() <= 1 + 20


def test_a_watching_pipeline_is_refused(client: redis.Redis) -> None:
    """It would execute at once; the message says what to call first."""
    f = make(client)
    with client.pipeline() as pipe:
        pipe.watch("other")  # type: ignore[no-untyped-call]  # redis-py has it so
        with pytest.raises(ValueError, match="multi"):
            f.queue_add(pipe, "a")
        pipe.multi()
        f.queue_add(pipe, "a")
        assert pipe.execute() == [1]


def test_asyncio_pipelines(server: Server) -> None:
    """The same on an asyncio pipeline."""

    async def main() -> list[Any]:
        async with redis.asyncio.Redis(unix_socket_path=server.socket) as client:
            f = bloomredis.asyncio.BloomFilter(client, "seen", capacity=1000, error_rate=1e-6)
            async with client.pipeline(transaction=True) as pipe:
                for item in ("a", "b", "a"):
                    await f.queue_add(pipe, item)
                await f.queue_contains(pipe, "b")
                return list(await pipe.execute())

    assert asyncio.run(main()) == [1, 1, 0, 1]
