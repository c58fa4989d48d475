"""Consumers of confluent-kafka and aiokafka, with the mock brokers of librdkafka."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from typing import Any

import pytest
import redis
from confluent_kafka import Consumer, KafkaError, KafkaException

import bloomredis
from bloomredis import WorkItem
from bloomredis.contrib.kafka import Batches
from tests.contrib import consumer
from tests.contrib.brokers import Brokers, with_redeliveries
from tests.contrib.violence import KEPT, restarting
from tests.support.clock import Clock
from tests.support.proxy import dropped, proxied
from tests.support.readme import ROOT, on_page
from tests.support.servers import Server, running
from tests.support.waiting import wait_until


@contextmanager
def started(
    library: str, brokers: Brokers, seen: Server, notes: Server, hang_after: int
) -> Iterator[subprocess.Popen[bytes]]:
    """Run a consumer with a filter on one server, and notes of its work on another."""
    arguments = [library, brokers.addresses, seen.socket, notes.socket, str(hang_after)]
    process = subprocess.Popen([sys.executable, "-m", "tests.contrib.consumer", *arguments], cwd=ROOT)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


@pytest.mark.parametrize("library", ["confluent", "aiokafka"])
def test_each_record_is_worked_on_once(library: str, any_server: Server, any_client: redis.Redis) -> None:
    """Of 5,000 records 30% are repeats; a consumer is killed, and the filter's server is away for a second.

    No committed offset passes an unfinished record.
    """
    brokers = Brokers()
    items = with_redeliveries(5000, 0.3)
    brokers.send(consumer.TOPIC, items)
    notes: Any = any_client

    def is_all_committed() -> bool:
        committed = brokers.committed(consumer.TOPIC, consumer.GROUP)
        ended = set(notes.lrange("ended", 0, -1))
        for partition, offset in committed.items():
            assert set(brokers.logs[partition][:offset]) <= ended
        return committed == {partition: len(log) for partition, log in brokers.logs.items()}

    with ExitStack() as stack:
        seen = stack.enter_context(running(any_server.binary, *KEPT))
        dying = stack.enter_context(started(library, brokers, seen, any_server, hang_after=600))
        if library == "confluent":  # these brokers refuse two aiokafka members that join together
            stack.enter_context(started(library, brokers, seen, any_server, hang_after=10**9))
        wait_until("a consumer hangs at a record", lambda: notes.llen("hanging"))
        assert not is_all_committed()
        dying.send_signal(signal.SIGKILL)
        if library == "aiokafka":
            stack.enter_context(started(library, brokers, seen, any_server, hang_after=10**9))
        before = notes.llen("ended")
        stack.enter_context(restarting(seen, lambda: notes.llen("ended") > before + 300))
        wait_until("all is committed", is_all_committed, every=0.1)
    assert Counter(notes.lrange("ended", 0, -1)) == Counter(set(items))


def is_older(busy: bloomredis.Claim) -> bool:
    """Return whether two fifths of a lease of five seconds are over."""
    return busy.remaining < 3


@contextmanager
def reading(kind: Callable[[dict[str, Any]], Any], **more: Any) -> Iterator[tuple[Brokers, Any]]:
    """Brokers with 20 records in one partition, and a consumer of them."""
    brokers = Brokers()
    brokers.send("orders", [b"%d" % number for number in range(20)], partitions=1)
    options = {"group.id": "one", "auto.offset.reset": "earliest", "enable.auto.commit": False}
    made = kind({"bootstrap.servers": brokers.addresses} | options | more)
    made.subscribe(["orders"])
    yield brokers, made
    made.close()


@pytest.fixture
def reader() -> Iterator[tuple[Brokers, Any]]:
    """A consumer of confluent-kafka."""
    with reading(Consumer) as both:
        yield both


def filled(batches: Batches, worked: list[bytes], until: int) -> int:
    """Work on batches until `until` records were worked on; return the number of reads of records."""
    read = 0

    def enough() -> bool:
        nonlocal read
        with batches.next(20, timeout=0.2) as batch:
            worked.extend(record.value() for record in batch)
            read += len(batch)
        return len(worked) >= until

    wait_until("the records are worked on", enough)
    return read


def test_a_busy_record_holds_its_partition_up(
    reader: tuple[Brokers, Any], any_client: redis.Redis, clock: Clock
) -> None:
    """The records after it are worked on, and read again when its claim has ended."""
    brokers, made = reader
    seen = bloomredis.BloomFilter(any_client, "done", capacity=1000, error_rate=1e-9)
    assert seen.claim(WorkItem("one", b"7"), lease=600)
    batches, worked = Batches(made, seen, key=lambda record: record.value()), list[bytes]()
    assert filled(batches, worked, 19) == 20
    assert brokers.committed("orders", "one") == {0: 7}
    clock.end_leases(any_client)
    assert filled(batches, worked, 20) == 13
    assert worked == [b"%d" % number for number in (*range(7), *range(8, 20), 7)]
    assert brokers.committed("orders", "one") == {0: 20}


def test_a_record_that_raised_is_not_finished_by_another_loop(
    reader: tuple[Brokers, Any], any_client: redis.Redis
) -> None:
    """The program goes on with the rest of the batch; the record comes again."""
    brokers, made = reader
    seen = bloomredis.BloomFilter(any_client, "seen", capacity=1000, error_rate=1e-9)
    batches = Batches(made, seen, key=lambda record: record.value())
    worked: list[bytes] = []

    def work(batch: Any) -> None:
        for record in batch:
            if record.value() == b"5" and b"6" not in worked:
                raise LookupError
            worked.append(record.value())

    def enough() -> bool:
        with batches.next(20, timeout=0.2) as batch:
            with suppress(LookupError):
                work(batch)
            work(batch)
        return len(worked) >= 20

    wait_until("the records are worked on", enough)
    assert sorted(worked, key=int) == [b"%d" % number for number in range(20)]
    assert worked[-1] == b"5"
    assert brokers.committed("orders", "one") == {0: 20}


def test_the_end_of_a_partition_is_no_error(any_client: redis.Redis) -> None:
    """With `enable.partition.eof` the client reports it among the records."""
    seen = bloomredis.BloomFilter(any_client, "seen", capacity=1000, error_rate=1e-9)
    worked: list[bytes] = []
    with reading(Consumer, **{"enable.partition.eof": True}) as (_, made):
        filled(Batches(made, seen), worked, 20)
    assert len(worked) == 20


def test_what_is_not_finished_is_given_back(reader: tuple[Brokers, Any], any_client: redis.Redis) -> None:
    """After an exception, the committed offset is that of the record at which it was raised."""
    brokers, made = reader
    seen = bloomredis.BloomFilter(any_client, "done", capacity=1000, error_rate=1e-9)
    batches, worked = Batches(made, seen), list[bytes]()

    def work() -> None:
        with batches.next(20, timeout=0.5) as batch:
            for record in batch:
                if record.value() == b"5":
                    raise ZeroDivisionError
                worked.append(record.value())

    def fails() -> bool:
        try:
            work()
        except ZeroDivisionError:
            return True
        return False

    wait_until("the record is met", fails)
    assert brokers.committed("orders", "one") == {0: 5}
    filled(batches, worked, 20)
    assert worked == [b"%d" % number for number in range(20)]


@pytest.mark.parametrize("at", ["5", "end"])
def test_the_effects_of_a_batch_may_belong_together(
    reader: tuple[Brokers, Any], any_client: redis.Redis, at: str
) -> None:
    """If the block raises, in the loop or after it, all records come again: none lacks its effect."""
    brokers, made = reader
    seen = bloomredis.BloomFilter(any_client, "done", capacity=1000, error_rate=1e-9)
    batches, table = Batches(made, seen, whole=True), list[bytes]()
    failures: Iterator[str] = iter(["once"])

    def work() -> None:
        with batches.next(20, timeout=0.5) as batch:
            effects = []
            for record in batch:
                if at == record.value().decode() and next(failures, ""):
                    raise ZeroDivisionError
                effects.append(record.value())
            if at == "end" and len(effects) > 0 and next(failures, ""):
                raise ZeroDivisionError
            table.extend(effects)

    def is_committed() -> bool:
        with suppress(ZeroDivisionError):
            work()
        return brokers.committed("orders", "one") == {0: 20}

    wait_until("all is committed", is_committed)
    assert table == [b"%d" % number for number in range(20)]


class Rebalanced(Consumer):
    """A consumer whose first commit meets a rebalance, and which can lose its partitions for a while."""

    left = 1
    seeks_left = 0
    is_between = False

    def seek(self, partition: Any) -> None:
        """Set the position in a partition."""
        if self.seeks_left:
            self.seeks_left -= 1
            raise KafkaException(KafkaError(KafkaError._STATE))
        super().seek(partition)

    def assignment(self) -> list[Any]:
        """Return the partitions that are assigned."""
        return [] if self.is_between else super().assignment()

    def commit(self, **options: Any) -> Any:
        """Commit offsets."""
        if self.left:
            self.left -= 1
            raise KafkaException(KafkaError(KafkaError.REBALANCE_IN_PROGRESS))
        return super().commit(**options)


@pytest.fixture
def rebalanced() -> Iterator[tuple[Brokers, Rebalanced]]:
    """A consumer that meets a rebalance."""
    with reading(Rebalanced) as both:
        yield both


def test_offsets_that_were_not_committed_are_with_the_next_batch(
    rebalanced: tuple[Brokers, Rebalanced], any_client: redis.Redis
) -> None:
    """An empty batch is enough."""
    brokers, made = rebalanced
    batches = Batches(made, bloomredis.BloomFilter(any_client, "done", capacity=1000, error_rate=1e-9))
    worked: list[bytes] = []
    filled(batches, worked, 20)
    with batches.next(20, timeout=0.2) as batch:
        assert len(batch) == 0
    assert (len(worked), brokers.committed("orders", "one")) == (20, {0: 20})


def test_a_partition_that_waited_goes_on_after_a_rebalance(
    rebalanced: tuple[Brokers, Rebalanced], any_client: redis.Redis, clock: Clock
) -> None:
    """Although it was not assigned when its wait ended."""
    brokers, made = rebalanced
    seen = bloomredis.BloomFilter(any_client, "done", capacity=1000, error_rate=1e-9)
    busy = seen.claim(WorkItem("one", b"7"), lease=600)
    batches, worked = Batches(made, seen, key=lambda record: record.value()), list[bytes]()
    filled(batches, worked, 19)
    assert busy.remaining
    clock.end_leases(any_client)
    assert not busy.remaining
    made.is_between = True
    with batches.next(20, timeout=0.2) as batch:
        assert len(batch) == 0
    made.is_between = False
    filled(batches, worked, 20)
    assert (worked[-1], brokers.committed("orders", "one")) == (b"7", {0: 20})


def test_a_partition_that_could_not_go_back_goes_back_later(
    rebalanced: tuple[Brokers, Rebalanced], any_client: redis.Redis, clock: Clock
) -> None:
    """No offset passes the busy record."""
    brokers, made = rebalanced
    seen = bloomredis.BloomFilter(any_client, "done", capacity=1000, error_rate=1e-9)
    assert seen.claim(WorkItem("one", b"7"), lease=600)
    made.left, made.seeks_left = 0, 2
    batches, worked = Batches(made, seen, key=lambda record: record.value()), list[bytes]()
    while made.seeks_left:
        with suppress(KafkaException):
            filled(batches, worked, 19)
    clock.end_leases(any_client)
    filled(batches, worked, 20)
    assert (worked[-1], brokers.committed("orders", "one")) == (b"7", {0: 20})


def test_claims_are_extended_between_records(reader: tuple[Brokers, Any], any_client: redis.Redis) -> None:
    """So a batch may take longer than the lease."""
    brokers, made = reader
    seen = bloomredis.BloomFilter(any_client, "done", capacity=1000, error_rate=1e-9)
    batches, count = Batches(made, seen, lease=5), 0

    def enough() -> bool:
        nonlocal count
        with batches.next(20, timeout=0.2) as batch:
            last = count + len(batch) - 1
            for at, _ in enumerate(batch):
                count += 1
                if at < 3 and at < len(batch) - 1:
                    busy = seen.claim(WorkItem("one", f"orders:0:{last}"))
                    wait_until("a while is over", partial(is_older, busy))
        return count >= 20

    wait_until("the records are worked on", enough)
    assert (count, brokers.committed("orders", "one")) == (20, {0: 20})


def test_the_server_away_loses_no_record(reader: tuple[Brokers, Any], any_server: Server) -> None:
    """The batch is read again by the next call."""
    brokers, made = reader
    with proxied(any_server.socket, dropped) as proxy:
        seen = bloomredis.BloomFilter(proxy.client(), "done", capacity=1000, error_rate=1e-9)
        batches = Batches(made, seen)

        def fails() -> bool:
            try:
                with batches.next(20, timeout=0.2) as batch:
                    return len(batch) < 0
            except bloomredis.BloomError:
                return True

        wait_until("the filter is asked", fails)
        proxy.calm()
        worked: list[bytes] = []
        filled(batches, worked, 20)
    assert len(worked) == 20
    assert brokers.committed("orders", "one") == {0: 20}


def test_a_lost_filter_stops_the_consumer(reader: tuple[Brokers, Any], any_client: redis.Redis) -> None:
    """Each `next` raises, until another program acknowledges the loss."""
    brokers, made = reader
    seen = bloomredis.BloomFilter(any_client, "done", capacity=1000, error_rate=1e-9)
    other = bloomredis.BloomFilter(any_client, "done", capacity=1000, error_rate=1e-9)
    assert [seen.add("before"), other.add("before")] == [True, False]
    any_client.flushall()
    batches = Batches(made, seen)
    for _ in range(2):
        with pytest.raises(bloomredis.FilterLostError):
            filled(batches, [], 20)
    with pytest.raises(bloomredis.FilterLostError):
        other.add("after")
    other.acknowledge()
    filled(batches, [], 20)
    assert brokers.committed("orders", "one") == {0: 20}


@pytest.mark.parametrize("number", [0, 1], ids=["confluent", "aiokafka"])
def test_the_examples_of_the_page_run(number: int, any_server: Server) -> None:
    """Each example works on the records of a topic; the last record stops it."""
    brokers = Brokers()
    brokers.send("orders", [b"first", b"second", b"first", b"last"], partitions=1)
    example = [each for each in on_page(ROOT / "docs" / "kafka.md") if each.language == "python"][number]
    text = example.text.replace("redis://localhost", any_server.url)
    text = text.replace("localhost:9092", brokers.addresses)
    program = (
        "import sys\n"
        "def ship(record):\n"
        "    value = record.value() if callable(record.value) else record.value\n"
        "    print(value.decode(), flush=True)\n"
        "    if value == b'last': sys.exit()\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program + text], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.stdout.split() == ["first", "second", "last"], done.stderr
