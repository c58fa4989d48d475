"""Tasks whose calls share round trips."""

from __future__ import annotations

import asyncio
from typing import Any

import redis
import redis.asyncio

import bloomredis.asyncio
from bloomredis import BloomFilter
from bloomredis.drivers.sharing import tasks
from bloomredis.drivers.sharing.batch import Batcher
from bloomredis.operations.claims.requests import ClaimRequest, Verb
from bloomredis.operations.claims.state import ClaimOptions, ClaimState
from tests.support.inside import inside
from tests.support.servers import Server
from tests.support.values import for_each

ITEMS = [f"https://example.org/page/{i}" for i in range(300)]


def make(client: Any, **options: Any) -> BloomFilter:
    return BloomFilter(client, "seen", capacity=100_000, error_rate=1e-9, **options)


@for_each("pair", [("a", b"a"), (b"5", 5), ("5", 5), ("\xe9", "\xe9".encode())])
def test_equal_items_of_other_types_are_equal(pair: tuple[Any, Any]) -> None:
    """Calls with equal items are never in flight together, so their answers come in their order."""
    codec = inside(make(redis.Redis())).codec
    first, second = map(codec.encode_for_batch, pair)
    assert (type(first), first) == (type(second), second)


def test_a_call_of_a_loop_that_was_closed_ends_later() -> None:
    """A late reply of a closed loop does not affect an equal call of the next loop."""

    async def nobody(*_: Any) -> list[bool]:
        raise AssertionError

    async def begun(over: asyncio.Future[bool]) -> Any:
        call: Any = shared.share("x", waiting, over)
        call.send(None)
        return call

    async def work() -> bool:
        over = asyncio.get_running_loop().create_future()
        call = asyncio.ensure_future(shared.share("x", waiting, over))
        await asyncio.sleep(0)
        left.close()
        assert shared.is_under_way("x")
        over.set_result(True)
        done: bool = await call
        return done

    def waiting(over: asyncio.Future[bool]) -> Any:
        return asyncio.wait_for(over, None)

    made: Any = tasks.Tasks  # made without a client
    shared = made("seen", None, nobody)
    shared._run = lambda _, call: call  # a call is a future that the test ends
    old = asyncio.new_event_loop()
    left = old.run_until_complete(begun(old.create_future()))
    old.close()
    assert asyncio.run(work())
    assert not shared.is_under_way("x")


def test_an_answer_that_a_closed_loop_left_is_kept(any_server: Server) -> None:
    """An answer is kept if its loop is closed before the waiting task runs again."""
    client = redis.asyncio.Redis(unix_socket_path=any_server.socket)
    f = bloomredis.asyncio.BloomFilter(client, "seen", capacity=1000, error_rate=1e-9)

    async def leave() -> Any:
        await f.add("warm")
        in_flight = f._adds._queue.in_flight  # where a call of another task seems to be under way
        in_flight.append({"another"})
        call = f.add("a")
        future = call.send(None)
        in_flight.clear()
        await asyncio.wait([future])
        await client.aclose()
        return call

    old = asyncio.new_event_loop()
    left = old.run_until_complete(leave())
    old.close()
    left.close()

    async def ask() -> list[bool]:
        async with client:
            return [await f.add("a"), await f.add("a")]

    assert asyncio.run(ask()) == [True, False]


def test_a_batch_of_requests_is_one_script() -> None:
    """Claims and commits that wait together leave one after the other, in the order of their calls."""
    queue, loop = Batcher(), asyncio.new_event_loop()
    verbs: list[Verb] = ["commit", "claim", "claim", "commit", "claim", "release"]
    for number, verb in enumerate(verbs):
        state = ClaimState.new(f"{number}", b"%d" % number, ClaimOptions(1000))
        queue.callers.append(asyncio.Future(loop=loop))
        queue.asked.append(ClaimRequest(verb, state))
    numbers, left = {caller: number for number, caller in enumerate(queue.callers)}, []
    while batch := queue.depart():
        left.append([numbers[caller] for caller in batch.callers])
        queue.end(batch.own)
    loop.close()
    assert sorted(number for batch in left for number in batch) == [*range(6)]
    assert all(len({verbs[number] for number in batch}) == 1 for batch in left)
    assert [batch[0] for batch in left] == sorted(batch[0] for batch in left)
