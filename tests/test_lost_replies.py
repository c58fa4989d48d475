"""One reply in fifty is lost after the server has executed the call: no answer changes."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import redis
import redis.asyncio
from redis.backoff import NoBackoff
from redis.retry import Retry

import bloomredis.asyncio
from bloomredis import BatchInterruptedError, BloomFilter, OutcomeUnknownError, layouts
from tests.losing import losing
from tests.servers import Server

ITEMS = [f"https://example.org/{i}" for i in range(5000)]
PLAIN = """
local new = 0
for i = 1, #ARGV do
  if redis.call('SETBIT', KEYS[1], ARGV[i], 1) == 0 then new = 1 end
end
return new
"""
RETRIES = {
    "as the client has it": {},
    "none": {"retry": Retry(NoBackoff(), 0)},
}


def one_by_one(f: BloomFilter, items: Sequence[str]) -> list[bool]:
    """Add items; where the outcome is unknown ask again, in turns with the token and without."""
    told = []
    for number, item in enumerate(items):
        token = None
        while True:
            try:
                told.append(f.add(item, token=token))
                break
            except OutcomeUnknownError as error:
                token = error.token if number % 2 else None
    return told


def in_batches(f: BloomFilter, items: Sequence[str]) -> list[bool]:
    """Add items 100 at a time; where a batch is interrupted go on with its rest."""
    told: list[bool] = []
    for start in range(0, len(items), 100):
        rest: Sequence[str] = items[start : start + 100]
        while rest:
            try:
                told += f.add_many(rest)
                rest = ()
            except BatchInterruptedError as error:
                told += error.results
                rest = error.rest
    return told


@pytest.mark.parametrize("retries", RETRIES)
@pytest.mark.parametrize("way", [one_by_one, in_batches])
def test_no_item_is_lost(
    server: Server, tmp_path: Path, way: Callable[[BloomFilter, Sequence[str]], list[bool]], retries: str
) -> None:
    """Every item is new exactly once, however the client retries."""
    with losing(server.socket, tmp_path) as proxy:
        client = redis.Redis(unix_socket_path=proxy.path, **RETRIES[retries])  # type: ignore[arg-type]  # its options
        f = BloomFilter(client, "seen", capacity=50_000, error_rate=1e-9)
        while not _survives(f.reserve):
            pass
        told = way(f, ITEMS)
        assert proxy.lost > (50 if way is one_by_one else 0)
    assert Counter(told) == {True: len(ITEMS)}


def _survives(call: Callable[[], object]) -> bool:
    try:
        call()
    except redis.ConnectionError:
        return False
    return True


@pytest.mark.parametrize("retries", RETRIES)
def test_no_item_of_many_tasks_is_lost(server: Server, tmp_path: Path, retries: str) -> None:
    """The same for 32 tasks whose calls travel together."""

    async def main() -> list[bool]:
        with losing(server.socket, tmp_path, share=0.05) as proxy:
            options: Any = {} if retries != "none" else {"retry": redis.asyncio.retry.Retry(_NONE, 0)}
            async with redis.asyncio.Redis(unix_socket_path=proxy.path, **options) as client:
                f = bloomredis.asyncio.BloomFilter(client, "seen", capacity=50_000, error_rate=1e-9)

                async def add(item: str) -> bool:
                    token = None
                    while True:
                        try:
                            return await f.add(item, token=token)
                        except OutcomeUnknownError as error:
                            token = error.token if len(item) % 2 else None
                        except redis.ConnectionError:
                            pass  # while the filter was opened

                async def work(worker: int) -> list[bool]:
                    return [await add(item) for item in ITEMS[worker::32]]

                told = await asyncio.gather(*(work(worker) for worker in range(32)))
            assert proxy.lost > 0
        return [answer for answers in told for answer in answers]

    assert Counter(asyncio.run(main())) == {True: len(ITEMS)}


_NONE = NoBackoff()


def test_a_plain_check_and_set_loses_items(any_server: Server, tmp_path: Path) -> None:
    """The fault is real: without receipts a client that retries is told "already there" of new items."""
    with losing(any_server.socket, tmp_path) as proxy:
        client = redis.Redis(unix_socket_path=proxy.path)
        layout = layouts.plan("classic", 50_000, 1e-9)
        script = client.register_script(PLAIN)
        old = sum(not script(keys=["plain"], args=layout.offsets(item)) for item in ITEMS)
    assert old == pytest.approx(proxy.lost, rel=0.2)
    assert old > 50
