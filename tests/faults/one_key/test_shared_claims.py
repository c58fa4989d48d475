"""Tasks whose calls about claims share round trips, and claims of which several callers have one."""

from __future__ import annotations

import asyncio
from typing import Any

import redis
import redis.asyncio

import bloomredis.asyncio
from bloomredis import BloomFilter, FilterFullError, OutcomeUnknownError, ScalingBloomFilter
from tests.support.background import PATIENCE, outcome, started
from tests.support.proxy import Held, Proxy, lost
from tests.support.servers import Server
from tests.support.values import for_each

TASKS, EACH = 64, 5


def make(client: Any) -> bloomredis.asyncio.BloomFilter:
    return bloomredis.asyncio.BloomFilter(client, "seen", capacity=100_000, error_rate=1e-9)


async def _run_once(server: Server) -> tuple[int, int]:
    """Let tasks run a function once for each item; return its runs, and the server's reads."""
    async with redis.asyncio.Redis(unix_socket_path=server.socket) as client:
        seen = make(client)
        await seen.claim("warm")
        await (await seen.claim("too")).commit()
        ran = []

        @seen.once(None, renew=False)
        async def body(item: str) -> None:
            ran.append(item)

        async def work(worker: int) -> None:
            for i in range(EACH):
                await body(f"{worker % (TASKS // 2)}-{i}")  # two tasks an item

        before = (await client.info("stats"))["total_reads_processed"]
        await asyncio.gather(*map(work, range(TASKS)))
        after = (await client.info("stats"))["total_reads_processed"]
        assert len(set(ran)) == len(ran)
        return len(ran), after - before


def test_tasks_in_once_share_round_trips(server: Server) -> None:
    """The server reads many calls at once, and each function runs once."""
    ran, reads = asyncio.run(_run_once(server))
    assert ran == TASKS // 2 * EACH
    assert reads * 5 < TASKS * EACH + ran  # claims and commits


async def _begun(seen: bloomredis.asyncio.BloomFilter, proxy: Proxy, *fates: Any) -> tuple[Any, list[Any]]:
    """Hold back a first claim; return it, and others that will share the next script."""
    await (await seen.claim("warm")).commit()
    held = Held()
    proxy.plan("claim", held, *fates)
    first = asyncio.ensure_future(seen.claim("first"))
    await asyncio.to_thread(held.wait)
    others = [asyncio.ensure_future(seen.claim(f"other-{i}")) for i in range(3)]
    await asyncio.sleep(0)
    return held, [first, *others]


def test_each_task_gets_an_error_of_its_own(any_proxy: Proxy) -> None:
    """A lost reply fails every task of the call; each retries and has its claim."""

    async def main() -> None:
        any_proxy.reset()
        async with any_proxy.asyncio_client() as client:
            await client.flushall()
            seen = make(client)
            held, calls = await _begun(seen, any_proxy, lost)
            held.go.set()
            done: list[Any] = await asyncio.gather(*calls, return_exceptions=True)
            assert done[0].state == "claimed"
            errors = done[1:]
            assert all(isinstance(each, OutcomeUnknownError) for each in errors)
            assert len({id(each) for each in errors}) == len(errors)
            again = [(await seen.claim(f"other-{i}")).state for i in range(3)]
            assert again == ["claimed"] * len(errors)

    asyncio.run(main())


@for_each("cancelled", ["waiting", "sent"])
def test_a_task_that_is_cancelled_leaves_its_claim_to_its_object(any_proxy: Proxy, cancelled: str) -> None:
    """The others get their answers; the object claims the item again."""

    async def main() -> None:
        any_proxy.reset()
        async with any_proxy.asyncio_client() as client:
            await client.flushall()
            seen = make(client)
            behind = Held()
            held, calls = await _begun(seen, any_proxy, *([behind] if cancelled == "sent" else []))
            if cancelled == "sent":
                held.go.set()
                await asyncio.to_thread(behind.wait)
            calls[1].cancel()
            await asyncio.sleep(0)
            (behind if cancelled == "sent" else held).go.set()
            done: list[Any] = await asyncio.gather(*calls, return_exceptions=True)
            assert isinstance(done[1], asyncio.CancelledError)
            assert [each.state for each in done if each is not done[1]] == ["claimed"] * 3
            assert (await seen.claim("other-0")).state == "claimed"

    asyncio.run(main())


def test_a_claim_that_two_tasks_commit_is_done_for_both(any_proxy: Proxy) -> None:
    """Two requests about one claim may wait for the same batch; they never share a script."""

    async def main() -> None:
        any_proxy.reset()
        async with any_proxy.asyncio_client() as client:
            await client.flushall()
            seen = make(client)
            claim = await seen.claim("x")
            held, calls = await _begun(seen, any_proxy)
            calls += [asyncio.ensure_future(claim.commit()) for _ in range(2)]
            calls += [asyncio.ensure_future(seen.claim("x")) for _ in range(2)]
            await asyncio.sleep(0)
            held.go.set()
            *claims, one, two = await asyncio.gather(*calls)
            assert claim.state == "done"
            assert {one.state, two.state} <= {"busy", "done"}
            assert (await seen.info()).count == 2
            assert [each.state for each in claims if each] == ["claimed"] * 4

    asyncio.run(main())


def test_the_tasks_of_a_batch_share_scripts(server: Server) -> None:
    """Tasks that claim, extend, commit and release send a tenth of the scripts; each lease is its own."""

    async def main() -> None:
        async with redis.asyncio.Redis(unix_socket_path=server.socket) as client:
            seen = make(client)
            await (await seen.claim("warm")).commit()

            async def work(worker: int) -> None:
                async with seen.claim(f"a-{worker}", lease=60 + worker % 2) as claim:
                    assert claim
                    assert 59 + worker % 2 < claim.remaining <= 60 + worker % 2
                    await claim.extend(90)
                    assert claim.remaining > 89
                other = await seen.claim(f"b-{worker}")
                await other.release()
                assert (claim.state, other.state) == ("done", "released")

            await client.config_resetstat()
            await asyncio.gather(*map(work, range(TASKS)))
            done: Any = await client.info("commandstats")
            scripts = sum(done.get(f"cmdstat_{name}", {"calls": 0})["calls"] for name in ("evalsha", "eval"))
            assert scripts * 10 < TASKS * 5

    asyncio.run(main())


def test_a_full_filter_refuses_each_task_by_itself(server: Server) -> None:
    """Of the tasks that share a call, those with a known item or a place have their claims."""

    async def main() -> None:
        async with redis.asyncio.Redis(unix_socket_path=server.socket) as client:
            seen = bloomredis.asyncio.BloomFilter(
                client, "full", capacity=5, error_rate=1e-6, on_full="raise"
            )
            await seen.add_many(["known", *map(str, range(4))])
            items = ["new-0", "known", "new-1", "0", "new-2"]
            claims: list[Any] = await asyncio.gather(*map(seen.claim, ["3", *items]), return_exceptions=True)
            states = [each if isinstance(each, Exception) else each.state for each in claims[1:]]
            assert [states[1], states[3]] == ["done", "done"]
            errors = [states[0], states[2], states[4]]
            assert [type(each) for each in errors] == [FilterFullError] * 3
            assert len({id(each) for each in errors}) == 3

    asyncio.run(main())


def test_a_claim_that_two_threads_commit_is_done_for_both(any_proxy: Proxy) -> None:
    """A late second commit succeeds too, though another call has reused the session of the first."""
    seen = BloomFilter(any_proxy.client(), "seen", capacity=1000, error_rate=1e-9)
    claim, other = seen.claim_many(["x", "y"])
    late = Held(executed=False)
    any_proxy.plan("commit", late)
    second = started(claim.commit)
    late.wait()
    claim.commit()
    other.commit()
    late.go.set()
    assert outcome(second) is None
    assert claim.state == "done"
    assert seen.info().count == 2


def test_a_claim_that_is_committed_beside_a_batch_with_it(any_proxy: Proxy, any_server: Server) -> None:
    """The batch was refused, since the filter has grown; its second attempt finds the claim committed."""
    seen = ScalingBloomFilter(any_proxy.client(), "seen", capacity=10, error_rate=1e-9)
    claims = seen.claim_many(["x", "y"])
    with any_server.client() as client:
        ScalingBloomFilter.open(client, "seen").add_many([f"{i}" for i in range(30)])
    refused = Held()
    any_proxy.plan("commit", refused)
    batch = started(lambda: seen.commit_many(claims))
    refused.wait()
    claims[0].commit()
    refused.go.set()
    assert batch.result(PATIENCE) == ["done", "done"]
    assert claims[0].state == "done"


def test_a_commit_without_a_reply_beside_one_that_is_answered(any_proxy: Proxy) -> None:
    """The claim is done, and neither caller gets an error."""
    seen = BloomFilter(any_proxy.client(), "seen", capacity=1000, error_rate=1e-9)
    claim = seen.claim("x", lease=60)
    late = Held(lost, executed=False)
    any_proxy.plan("commit", late)
    second = started(claim.commit)
    late.wait()
    claim.commit()
    late.go.set()
    assert outcome(second) is None
    assert claim.state == "done"
