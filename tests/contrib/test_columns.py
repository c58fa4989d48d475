"""Rows that are new, in the frames and engines that people use."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable
from typing import Any

import duckdb
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from bloomredis import BloomFilter
from bloomredis.contrib.columns import AbsentRows, Added, NewRows, foreach_batch, register
from tests.contrib import pages
from tests.support.servers import Server

FRAMES: dict[str, Callable[[dict[str, list[Any]]], Any]] = {
    "pandas": pd.DataFrame,
    "polars": pl.DataFrame,
    "table": pa.table,
    "record batch": pa.RecordBatch.from_pydict,
}
EACH_FRAME = pytest.mark.parametrize("frame", FRAMES.values(), ids=FRAMES)


@pytest.fixture
def seen(any_server: Server) -> BloomFilter:
    return BloomFilter.from_url(any_server.url, "seen", capacity=10_000, error_rate=1e-9)


def values(batch: Any, column: str) -> list[Any]:
    """Return a column as a list."""
    found = batch[column]
    return found.to_pylist() if hasattr(found, "to_pylist") else list(found)


@EACH_FRAME
def test_new_rows_are_those_of_a_frame(frame: Any, seen: BloomFilter) -> None:
    """All columns of them, as a frame of the same kind."""
    batch = frame({"url": ["a", "b", "a", "c"], "size": [1, 2, 3, 4]})
    seen.add("c")
    new = NewRows(seen, "url")(batch)
    assert type(new) is type(batch)
    assert (values(new, "url"), values(new, "size")) == (["a", "b"], [1, 2])
    assert len(NewRows(seen, "url")(batch)) == 0


@EACH_FRAME
def test_absent_rows_add_nothing(frame: Any, seen: BloomFilter) -> None:
    """The same rows come again; of equal ones the first."""
    seen.add("c")
    batch = frame({"url": ["a", "b", "a", "c"], "size": [1, 2, 3, 4]})
    for _ in range(2):
        assert values(AbsentRows(seen, "url")(batch), "size") == [1, 2]
    seen.add_many(["a", "b"])
    assert len(AbsentRows(seen, "url")(batch)) == 0


@pytest.mark.parametrize("make", [NewRows, AbsentRows, Added])
def test_what_engines_send_to_workers_pickles(make: Any, seen: BloomFilter) -> None:
    """With a filter that connects there."""
    assert vars(pickle.loads(pickle.dumps(make(seen, "url"))))["_seen"].name == "seen"  # noqa: S301 - its own


def test_duckdb_asks_for_columns(seen: BloomFilter) -> None:
    """Each item is new once, over queries and rows."""
    connection = duckdb.connect()
    register(connection, seen, "unseen")
    query = "SELECT count(*) FROM (SELECT 'e' || (range % 5000) AS id FROM range(20000)) WHERE unseen(id)"
    assert connection.sql(query).fetchall() == [(5000,)]
    assert connection.sql(query).fetchall() == [(0,)]


class Frame:
    """What `foreach_batch` asks of a data frame of Spark, over record batches; each use runs them again."""

    def __init__(self, made: Callable[[], list[pa.RecordBatch]]) -> None:
        self.collect = made
        self.schema = None
        self.unpersisted = False

    def dropDuplicates(self, columns: list[str]) -> Frame:  # noqa: N802 - Spark's own name
        def made() -> list[pa.RecordBatch]:
            rows = {row[columns[0]]: row for batch in self.collect() for row in batch.to_pylist()[::-1]}
            return [pa.RecordBatch.from_pylist([row]) for row in rows.values()]

        return Frame(made)

    def mapInArrow(self, function: Callable[[Iterable[Any]], Iterable[Any]], _: Any) -> Frame:  # noqa: N802
        return Frame(lambda: list(function(iter(self.collect()))))

    def select(self, column: str) -> Frame:
        return Frame(lambda: [batch.select([column]) for batch in self.collect()])

    def persist(self) -> Frame:
        return self  # a cache that lost everything

    def unpersist(self) -> None:
        self.unpersisted = True


class Sink:
    """Batches that were written, by their numbers."""

    def __init__(self) -> None:
        self.batches: dict[int, list[str]] = {}
        self.fails_after = False

    def write(self, frame: Any, number: int) -> None:
        """Write a batch in the place of an earlier one of its number."""
        frame.collect()  # a partition that is run again
        self.batches[number] = [item for batch in frame.collect() for item in batch["id"].to_pylist()]
        if self.fails_after:
            raise OSError("the driver is gone")

    @property
    def written(self) -> list[str]:
        return sorted(item for batch in self.batches.values() for item in batch)


def spark(*items: str) -> Frame:
    """Return a frame with a column `id`."""
    return Frame(lambda: [pa.RecordBatch.from_pydict({"id": list(items)})])


def test_a_stream_writes_each_row_once(seen: BloomFilter) -> None:
    """Over batches, though each partition is run several times."""
    sink = Sink()
    handle = foreach_batch(seen, "id", sink.write)
    handle(spark("a", "b", "a"), 1)
    handle(spark("b", "c"), 2)
    assert sink.written == ["a", "b", "c"]


def test_a_batch_that_failed_after_its_write_comes_again(seen: BloomFilter) -> None:
    """Under its number, whole."""
    sink = Sink()
    handle = foreach_batch(seen, "id", sink.write)
    sink.fails_after = True
    with pytest.raises(OSError, match="driver is gone"):
        handle(spark("a", "b"), 1)
    sink.fails_after = False
    handle(spark("a", "b"), 1)
    handle(spark("b", "c"), 2)
    assert sink.written == ["a", "b", "c"]


def test_the_page_runs(any_server: Server) -> None:
    """Each of its examples."""
    pages.run("columns", any_server)
