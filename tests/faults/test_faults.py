"""Servers crash, fail over and misbehave while workers add: each item is new for exactly one of them.

Each scenario runs on every real server at the same time, with a process for each, since they mostly wait.
"""

from __future__ import annotations

import asyncio
import random
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

import pytest
import redis
import redis.asyncio
from redis.backoff import NoBackoff
from redis.retry import Retry

import bloomredis.asyncio
from bloomredis import BloomFilter, OutcomeUnknownError
from tests.support.crew import DOUBTLESS, PATIENCE, Crew, Seat
from tests.support.inside import inside
from tests.support.losing import LosingProxy, losing
from tests.support.racing import PROCESSES
from tests.support.replicas import Pair
from tests.support.servers import Server, binaries, running

BINARIES = binaries()
REAL = sorted(BINARIES)
SIZE: dict[str, Any] = {"capacity": 500_000, "error_rate": 1e-9}


@dataclass(frozen=True)
class Report:
    """The outcome on one server."""

    server: str
    answered: int
    misled: dict[str, int]  # by item: how many workers were told that it is new, if not one
    missing: list[str]  # items with an answer that are not in the filter
    done: dict[str, int]
    errors: dict[str, int]


Scenario = Callable[..., Report]


def everywhere(scenario: Scenario, servers: Sequence[str] = REAL) -> list[Report]:
    """Return a scenario's report for each server; an unexpected error is raised."""
    with ProcessPoolExecutor(len(servers), PROCESSES) as pool:
        return list(pool.map(scenario, servers))


def seats(at: dict[str, Any], **options: Any) -> dict[str, Seat]:
    """Return filter objects of several kinds, each with its own client of the current server."""
    never = Retry(NoBackoff(), 0)
    options |= SIZE
    made: dict[str, Any] = {
        "default": BloomFilter(redis.Redis(**at), "seen", **options),
        "impatient": BloomFilter(redis.Redis(**at, socket_timeout=0.03), "seen", **options),
        "unretried": BloomFilter(redis.Redis(**at, retry=never), "seen", **options),
        "tokenless": BloomFilter(redis.Redis(**at, retry=never), "seen", **options),
        "batches": BloomFilter(redis.Redis(**at, retry=never), "seen", **options),
    }
    for each in made.values():
        patiently(each.create)
    made["tasks"] = bloomredis.asyncio.BloomFilter(redis.asyncio.Redis(**at), "seen", **options)
    return {name: Seat(name, each, uses_tokens=name != "tokenless") for name, each in made.items()}


def patiently(call: Callable[[], object]) -> None:
    """Repeat a call that is safe to repeat until it succeeds."""
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        with suppress(*DOUBTLESS):
            call()
            return
    raise TimeoutError(f"{call} does not succeed")


@contextmanager
def crew_at_work(at: dict[str, Seat]) -> Iterator[Crew]:
    """Let threads, tasks and batches add until the block ends, and wait for the last answers."""
    crew = Crew()
    try:
        for name in ("default", "impatient", "unretried", "tokenless"):
            crew.threads(at[name], 4 if name == "tokenless" else 2)
        crew.batches(at["batches"], 1)
        crew.tasks(at["tasks"], 8)
        yield crew
    finally:
        crew.stop()


def missing(crew: Crew, server: Server) -> list[str]:
    """Return the items that have an answer and are not in the filter."""
    answered = crew.answered()
    with server.client() as client:
        there = BloomFilter.open(client, "seen").contains_many(answered)
    return [item for item, found in zip(answered, there, strict=True) if not found]


def report(name: str, crew: Crew, lost: list[str], done: dict[str, int]) -> Report:
    return Report(name, len(crew.answered()), crew.misled(), lost, done, dict(crew.errors))


def crashes(name: str, *, kills: int = 20, retry_safe: bool = True) -> Report:
    """Kill and restart the server; with appendfsync always, every answered write is on disk."""
    options = ("--save", "", "--appendonly", "yes", "--appendfsync", "always")
    with running(BINARIES[name], *options) as server:
        with crew_at_work(seats({"unix_socket_path": server.socket}, retry_safe=retry_safe)) as crew:
            for _ in range(kills):
                crew.wait_for(200)
                server.stop(signal.SIGKILL)
                server.start()
            crew.wait_for(200)
        return report(name, crew, missing(crew, server), {"SIGKILL": kills})


def failovers(name: str, *, times: int = 6, retry_safe: bool = True) -> Report:
    """Kill the primary and use its replica, with min_replicas=1, then a replica of that."""
    lost = []
    with ExitStack() as stack:
        pair = Pair(BINARIES[name], stack)
        address = {"unix_socket_path": pair.primary.socket}
        at = seats(address, min_replicas=1, replica_timeout=0.2, retry_safe=retry_safe)
        with crew_at_work(at) as crew:
            for _ in range(times):
                crew.wait_for(300)
                pair.fail_over()
                lost += missing(crew, pair.primary)
                for seat in at.values():
                    kind: Any = redis.asyncio if seat.name == "tasks" else redis
                    seat.switch(kind.Redis(unix_socket_path=pair.primary.socket))
                pair.attach()
            crew.wait_for(300)
        return report(name, crew, lost + missing(crew, pair.primary), {"failover": times})


def storm(name: str, *, times: int = 600, retry_safe: bool = True) -> Report:
    """Disturb the server at random, as the server itself, its administrator and the network may."""
    six = b"v=6." in subprocess.run([BINARIES[name], "--version"], capture_output=True, check=True).stdout
    allow = () if six else ("--enable-debug-command", "yes")
    with running(BINARIES[name], "--save", "", *allow) as server, losing(server.socket, share=0) as proxy:
        with crew_at_work(seats({"port": proxy.port}, retry_safe=retry_safe)) as crew:
            done = chaos(server, proxy, crew, times, seed=REAL.index(name))
        return report(name, crew, missing(crew, server), done)


def chaos(server: Server, proxy: LosingProxy, crew: Crew, times: int, seed: int) -> dict[str, int]:
    """Cause that many disturbances, each after some answers; return how often each happened."""
    with server.client() as admin:
        mischief: dict[str, Callable[[], object]] = {
            "SCRIPT FLUSH": admin.script_flush,
            "CLIENT KILL": lambda: admin.execute_command("CLIENT", "KILL", "TYPE", "normal"),
            "CLIENT PAUSE ALL": lambda: admin.execute_command("CLIENT", "PAUSE", 50, "ALL"),
            "CLIENT PAUSE WRITE": lambda: admin.execute_command("CLIENT", "PAUSE", 50, "WRITE"),
            "DEBUG SLEEP": lambda: admin.execute_command("DEBUG", "SLEEP", "0.05"),
            "reset": proxy.reset,
        }
        dice, done = random.Random(seed), dict.fromkeys(mischief, 0)
        for _ in range(times):
            name = dice.choice(list(mischief))
            mischief[name]()
            done[name] += 1
            crew.wait_for(dice.randrange(60))
    return done


NAMES = ("crashes", "failovers", "storm")
SERIES = [
    pytest.param(partial(crashes, kills=4), ["redis-6.2"], id="crashes-short"),
    pytest.param(partial(failovers, times=2), ["redis-8"], id="failovers-short"),
    pytest.param(partial(storm, times=30), ["valkey-9"], id="storm-short"),
    *(
        pytest.param(scenario, REAL, id=f"{scenario.__name__}-long", marks=pytest.mark.long)
        for scenario in (crashes, failovers, storm)
    ),
]


@pytest.mark.parametrize(("scenario", "servers"), SERIES)
def test_no_answer_is_wrong_or_forgotten(scenario: Scenario, servers: list[str]) -> None:
    """Each item is new for one worker, and every answered item is in the filter, whatever happens."""
    for each in everywhere(scenario, servers):
        print(each)  # noqa: T201 - shown if the test fails
        assert (each.misled, each.missing) == ({}, [])
        assert 500 < each.answered < SIZE["capacity"]
        assert all(each.done.values())
        assert each.errors["OutcomeUnknownError"] > 10


@pytest.mark.long
@pytest.mark.parametrize("scenario", [crashes, failovers, partial(storm, times=60)], ids=NAMES)
def test_the_faults_mislead_those_without_receipts(scenario: Scenario) -> None:
    """The faults are real: without safe retries, some items are reported new to nobody."""
    (each,) = everywhere(partial(scenario, retry_safe=False), ["valkey-9"])
    assert each.misled
    assert set(each.misled.values()) == {0}
    assert each.missing == []


SMALL: dict[str, Any] = {"capacity": 1000, "error_rate": 1e-6}


def test_equal_items_of_a_lost_batch_have_one_winner(any_server: Server) -> None:
    """Two tasks add the same item in one batch whose reply is lost; on retry it is new for one."""

    async def main() -> list[bool]:
        never = redis.asyncio.retry.Retry(NoBackoff(), 0)
        with losing(any_server.socket, share=0) as proxy:
            async with redis.asyncio.Redis(port=proxy.port, retry=never) as client:
                f = bloomredis.asyncio.BloomFilter(client, "seen", **SMALL)
                await f.create()
                proxy.share = 1
                adds = (f.add(item) for item in ("goes alone", "twice", "twice"))
                _, *errors = await asyncio.gather(*adds, return_exceptions=True)
                proxy.share = 0
                tokens = [error.token for error in errors if isinstance(error, OutcomeUnknownError)]
                return [await f.add("twice", token=token) for token in tokens]

    assert sorted(asyncio.run(main())) == [False, True]


def test_an_answer_is_owed_to_one_caller(any_server: Server) -> None:
    """Another caller that adds the item on the object first gets the answer; the token then gets False."""
    with losing(any_server.socket, share=0) as proxy:
        client = redis.Redis(port=proxy.port, retry=Retry(NoBackoff(), 0))
        f = BloomFilter(client, "seen", **SMALL)
        f.create()
        proxy.share = 1
        with pytest.raises(OutcomeUnknownError) as caught:
            f.add("a")
        proxy.share = 0
        assert [f.add("a"), f.add("a", token=caught.value.token)] == [True, False]


def test_already_there_waits_for_replicas_too() -> None:
    """An answer "already there" waits for replicas too, since it may rely on another's latest write."""
    with ExitStack() as stack:
        pair = Pair(BINARIES["valkey-9"], stack)
        f = BloomFilter(pair.primary.client(), "seen", min_replicas=1, replica_timeout=0.1, **SMALL)
        patiently(f.create)
        assert pair.replica.process
        pair.replica.process.send_signal(signal.SIGSTOP)
        assert BloomFilter(pair.primary.client(), "seen", **SMALL).add("a")
        with pytest.raises(OutcomeUnknownError, match="0 of 1 replicas"):
            f.add("a")


def test_a_refused_wait_does_not_undo_the_write(server: Server) -> None:
    """A user without the right to WAIT gets an unknown outcome, not a refused write."""
    with server.client() as admin:
        admin.acl_setuser(
            "hasty", enabled=True, nopass=True, keys=["*"], commands=["-wait"], categories=["+@all"]
        )
        with server.client(username="hasty") as client:
            f = BloomFilter(client, "seen", min_replicas=1, **SMALL)
            operations(f).stored.use(opened(BloomFilter(admin, "seen", **SMALL)))
            with pytest.raises(OutcomeUnknownError, match="wait") as caught:
                f.add("a")
        admin.acl_deluser("hasty")
        assert BloomFilter(admin, "seen", **SMALL).add("a", token=caught.value.token)


def opened(f: BloomFilter) -> Any:
    """Return the identity that an opened object has."""
    f.create()
    return operations(f).stored.handle


def operations(f: BloomFilter) -> Any:
    """Return the operations of a filter."""
    return inside(f)
