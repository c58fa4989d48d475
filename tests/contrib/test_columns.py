"""New rows, in data frames and engines."""

from __future__ import annotations

import os
import pickle
import random
import re
import signal
import subprocess
import sys
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from bloomredis import BloomFilter, ClaimLostError
from bloomredis.contrib.columns import AbsentRows, Added, KeptRows, NewRows, foreach_batch, register
from bloomredis.operations.claims.state import ClaimState
from tests.contrib import pages
from tests.contrib.violence import KEPT, restart
from tests.support.readme import ROOT
from tests.support.servers import Server, running
from tests.support.values import for_each
from tests.support.waiting import wait_until

FRAMES: dict[str, Callable[[dict[str, Any]], Any]] = {
    "pandas": pd.DataFrame,
    "polars": pl.DataFrame,
    "table": pa.table,
    "record batch": pa.RecordBatch.from_pydict,
    "arrays of numpy": lambda columns: {
        name: np.array(column, dtype=object) for name, column in columns.items()
    },
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
    """The new rows have all columns, in a frame of the same kind."""
    batch = frame({"url": ["a", "b", "a", "c"], "size": [1, 2, 3, 4]})
    seen.add("c")
    new = NewRows(seen, "url")(batch)
    assert type(new) is type(batch)
    assert (values(new, "url"), values(new, "size")) == (["a", "b"], [1, 2])
    assert values(NewRows(seen, "url")(batch), "url") == []


@EACH_FRAME
def test_absent_rows_add_nothing(frame: Any, seen: BloomFilter) -> None:
    """A second run returns the same rows; of equal rows, the first."""
    seen.add("c")
    batch = frame({"url": ["a", "b", "a", "c"], "size": [1, 2, 3, 4]})
    for _ in range(2):
        assert values(AbsentRows(seen, "url")(batch), "size") == [1, 2]
    seen.add_many(["a", "b"])
    assert values(AbsentRows(seen, "url")(batch), "url") == []


@EACH_FRAME
def test_kept_rows_are_the_same_whenever_a_batch_is_run(frame: Any, seen: BloomFilter) -> None:
    """Another batch keeps the other rows; equal rows of one batch are kept once."""
    kept = KeptRows(seen, "url", job="november")
    one = frame({"url": ["a", "b", "a", "c"], "size": [1, 2, 3, 4]})
    other = frame({"url": ["c", "d", "a"], "size": [4, 5, 6]})
    for _ in range(2):
        assert values(kept(one), "size") == [1, 2, 4]
        assert values(kept(other), "url") == ["d"]
    assert values(KeptRows(seen, "url", job="december")(one), "url") == []


def test_kept_rows_may_be_numbers_or_bytes(seen: BloomFilter) -> None:
    """A number is the same item as its text."""
    kept = KeptRows(seen, "id", job="november")
    for ids in ([1, 2, 1], [b"x", b"y", b"x"]):
        for _ in range(2):
            assert values(kept(pa.table({"id": ids})), "id") == ids[:2]
    assert 2 in seen


MAKERS: dict[str, Callable[..., Any]] = {
    "NewRows": NewRows,
    "KeptRows": lambda *given, **options: KeptRows(*given, job="november", **options),
    "AbsentRows": AbsentRows,
}


@for_each("maker", MAKERS)
@for_each("frame", FRAMES)
@for_each(("missing", "kept"), [("keep", [1, 2, 3, 5]), ("drop", [1, 3])])
def test_a_row_without_an_item(
    any_server: Server, maker: str, frame: str, missing: str, kept: list[int]
) -> None:
    """Rows that are null are kept in their places or dropped; the others are compared."""
    seen = BloomFilter.from_url(any_server.url, f"{maker}{frame}{missing}", capacity=100, error_rate=1e-9)
    call = MAKERS[maker](seen, "url", missing=missing)
    batch = FRAMES[frame]({"url": ["a", None, "b", "a", None], "size": [1, 2, 3, 4, 5]})
    assert values(call(batch), "size") == kept
    nulls = FRAMES[frame]({"url": [None, None], "size": [1, 2]})
    assert values(call(nulls), "size") == ([1, 2] if missing == "keep" else [])


NO_ITEMS: dict[str, tuple[list[Any], str]] = {
    "a null": (["a", "b", None], "row 2: .*a null"),
    "a float": ([0.5, 1.5], "row 0: .*not float"),
    "no text": (["a", "\ud800"], "row 1: .*not valid Unicode"),
}


@for_each("maker", MAKERS)
@for_each("wrong", NO_ITEMS)
def test_a_row_that_is_no_item_is_named(any_server: Server, maker: str, wrong: str) -> None:
    """Nothing is added."""
    seen = BloomFilter.from_url(any_server.url, "seen", capacity=100, error_rate=1e-9)
    column, match = NO_ITEMS[wrong]
    options = {"unit": lambda _: "a name"} if maker == "KeptRows" else {}
    with pytest.raises((TypeError, ValueError), match=match):
        MAKERS[maker](seen, "id", **options)({"id": np.array(column, dtype=object)})
    with any_server.client() as client:
        assert client.keys() == []


@for_each("maker", MAKERS)
def test_bytes_of_numpy_that_may_have_lost_their_end_are_refused(any_server: Server, maker: str) -> None:
    """As by the filter itself."""
    seen = BloomFilter.from_url(any_server.url, "seen", capacity=100, error_rate=1e-9)
    with pytest.raises(TypeError, match=r"row 1: .*view\('V2'\)"):
        MAKERS[maker](seen, "id")({"id": np.array([b"ab", b"c\0"])})


def test_the_index_of_a_frame_is_no_part_of_its_identity(seen: BloomFilter) -> None:
    """A rerun may number its rows in another way."""
    kept = KeptRows(seen, "url", job="november")
    for index in (None, [7, 9], ["x", "y"], pd.RangeIndex(5, 7)):
        assert list(kept(pd.DataFrame({"url": ["a", "b"]}, index=index))["url"]) == ["a", "b"]


def test_a_batch_of_ray_may_have_tensors(seen: BloomFilter) -> None:
    """They are part of its identity."""
    kept = KeptRows(seen, "url", job="november")
    urls = np.array(["a", "b"], dtype=object)
    for vectors, count in ((np.eye(2), 2), (np.eye(2), 2), (np.ones((2, 2)), 0)):
        assert len(kept({"url": urls, "vector": vectors})["vector"]) == count


def test_duckdb_has_an_answer_for_null(seen: BloomFilter) -> None:
    """It is true, false, or an error."""
    connection = duckdb.connect()
    query = "SELECT is_{}(id) FROM (VALUES ('a'), (NULL), ('a'), (NULL)) AS t(id)"
    register(connection, seen, "is_raise")
    with pytest.raises(duckdb.Error, match=r"row 1: .*a null"):
        connection.sql(query.format("raise")).fetchall()
    register(connection, seen, "is_keep", missing="keep")
    assert connection.sql(query.format("keep")).fetchall() == [(True,), (True,), (False,), (True,)]
    register(connection, seen, "is_drop", missing="drop")
    assert connection.sql(query.format("drop")).fetchall() == [(False,)] * 4


def test_a_batch_may_have_a_name(seen: BloomFilter) -> None:
    """Then two batches with the same values are different parts."""
    batch = pa.table({"url": ["a", "b"]})
    names = iter(["first", "second", "first"])
    kept = KeptRows(seen, "url", job="november", unit=lambda _: next(names))
    assert [len(kept(batch)) for _ in range(3)] == [2, 0, 2]


def test_a_job_has_a_name(seen: BloomFilter) -> None:
    """An empty name raises `ValueError`."""
    with pytest.raises(ValueError, match="job must not be empty"):
        KeptRows(seen, "url", job="")


@pytest.mark.parametrize("verb", ["claim_many", "add_many", "commit_many"])
@pytest.mark.parametrize("seconds", [-3600.0, 0.0, 3600.0])
def test_a_batch_that_was_cut_off_is_run_again(
    any_server: Server, seen: BloomFilter, monkeypatch: pytest.MonkeyPatch, verb: str, seconds: float
) -> None:
    """If it is killed between any two calls, no row is lost or doubled, whatever the next machine's clock."""
    one, other = pa.table({"url": ["a", "b"]}), pa.table({"url": ["b", "c"]})
    kept = KeptRows(seen, "url", job="november")

    def killed(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(seen, verb, killed)
        with pytest.raises(KeyboardInterrupt):
            kept(one)
    monkeypatch.setattr(time, "time", partial(lambda clock: clock() + seconds, time.time))
    again = BloomFilter.from_url(any_server.url, "seen")
    found = [*values(kept(other), "url"), *values(KeptRows(again, "url", job="november")(one), "url")]
    assert sorted(found) == ["a", "b", "c"]


def test_a_row_of_another_run_is_not_dropped(seen: BloomFilter, monkeypatch: pytest.MonkeyPatch) -> None:
    """If a later call for the same part holds a row, the batch fails, since the row is no repeat."""
    batch = pa.table({"url": ["a", "b"]})
    claim_many = seen.claim_many

    def late(keys: Iterable[bytes], *, lease: float, owner: str) -> Any:
        """Claim some items with the owner of a call that began before the call that holds them."""
        later = claim_many([*keys][1:], lease=lease, owner=owner)
        assert all(later)
        with monkeypatch.context() as inner:
            inner.setattr(ClaimState, "is_replaceable", property(lambda _: False))
            return claim_many(keys, lease=lease, owner=owner)

    monkeypatch.setattr(seen, "claim_many", late)
    with pytest.raises(ClaimLostError, match="another run"):
        KeptRows(seen, "url", job="november")(batch)
    monkeypatch.undo()
    assert len(KeptRows(seen, "url", job="november")(batch)) == 2


def test_a_partition_of_dask_is_known_by_its_rows(seen: BloomFilter) -> None:
    """Dask numbers the partitions of a selection anew, and a shuffle may change the order of rows."""
    kept = KeptRows(seen, "url", job="november")
    frames = [pd.DataFrame({"url": urls}) for urls in (["a", "b"], ["c", "d"], ["b", "a"], ["b", "e"])]
    numbers = (0, 1, 2, 0)
    found = [
        list(kept.partition(frame, {"number": n})["url"]) for frame, n in zip(frames, numbers, strict=True)
    ]
    assert found == [["a", "b"], ["c", "d"], ["b", "a"], ["e"]]


class Spark:
    """The part of pyspark that `each` uses: the number of the partition."""

    class TaskContext:
        number = 0

        @classmethod
        def get(cls) -> Spark.TaskContext:
            return cls()

        def partitionId(self) -> int:  # noqa: N802 - Spark's own name
            return self.number


def test_a_partition_of_spark_is_one_part(seen: BloomFilter, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also if a rerun cuts the partition into other batches."""
    monkeypatch.setitem(sys.modules, "pyspark", Spark)
    kept = KeptRows(seen, "id", job="november")

    def run(number: int, *batches: list[str]) -> list[str]:
        Spark.TaskContext.number = number
        made = (pa.RecordBatch.from_pydict({"id": batch}) for batch in batches)
        return [item for batch in kept.each(made) for item in batch["id"].to_pylist()]

    assert run(1, ["a", "b"], ["a", "c"]) == ["a", "b", "c"]
    assert run(2, ["c", "d"]) == ["d"]
    assert run(1, ["a"], ["b", "a", "c"]) == ["a", "b", "c"]


def test_dask_loses_and_doubles_no_row(any_server: Server, tmp_path: Path) -> None:
    """Two workers are killed in the middle, and the filter's server is away for a second."""
    folder = tmp_path / "in"
    folder.mkdir()
    draw = random.Random(1)
    texts = [f"text {draw.randrange(2000)}" for _ in range(6000)]
    for number in range(12):
        part = {"text": texts[number::12], "row": list(range(500))}
        pq.write_table(pa.table(part), folder / f"{number:02}.parquet")
    with running(any_server.binary, *KEPT) as server:
        command = [sys.executable, "-m", "tests.contrib.dask_job", server.url, str(tmp_path)]
        with subprocess.Popen(command, cwd=ROOT, start_new_session=True) as process:
            try:
                wait_until("two workers were killed", lambda: len(list(tmp_path.glob("killed-*"))) == 2)
                restart(server)
                wait_until("all rows are written", (tmp_path / "done").exists)
            finally:
                os.killpg(process.pid, signal.SIGKILL)
    written = Counter(
        text
        for path in (tmp_path / "out").glob("*.parquet")
        for text in pq.read_table(path)["text"].to_pylist()
    )
    assert written == dict.fromkeys(texts, 1)


@pytest.mark.parametrize("make", [NewRows, AbsentRows, Added])
def test_what_engines_send_to_workers_pickles(make: Any, seen: BloomFilter) -> None:
    """With a filter that connects in the worker."""
    assert vars(pickle.loads(pickle.dumps(make(seen, "url"))))["_seen"].name == "seen"  # noqa: S301 - its own


def test_duckdb_asks_for_columns(seen: BloomFilter) -> None:
    """Each item is new once, across rows and queries."""
    connection = duckdb.connect()
    register(connection, seen, "unseen")
    query = "SELECT count(*) FROM (SELECT 'e' || (range % 5000) AS id FROM range(20000)) WHERE unseen(id)"
    assert connection.sql(query).fetchall() == [(5000,)]
    assert connection.sql(query).fetchall() == [(0,)]


TYPES = {
    "VARCHAR": ("'a'", "'b'", "a"),
    "BIGINT": ("7", "8", 7),
    "HUGEINT": (str(2**100), "8", 2**100),
    "UUID": (
        "'00000000-0000-0000-0000-000000000007'",
        "'00000000-0000-0000-0000-000000000008'",
        str(uuid.UUID(int=7)),
    ),
    "BLOB": (r"'\x00\xff'", "'b'", b"\x00\xff"),
}
"""Two values of a type of DuckDB, and the first one as an item."""


@for_each("kind", TYPES)
def test_duckdb_takes_columns_of_each_type_that_is_an_item(kind: str, any_server: Server) -> None:
    """The item is the one that other programs add."""
    first, second, item = TYPES[kind]
    known: Any = item
    seen = BloomFilter.from_url(any_server.url, f"items of {kind}", capacity=1000, error_rate=1e-9)
    connection = duckdb.connect()
    register(connection, seen)
    query = f"SELECT is_new(v::{kind}) FROM (VALUES ({first}), ({second}), ({first})) AS t(v)"  # noqa: S608 - of the test
    assert connection.execute(query).fetchall() == [(True,), (True,), (False,)]
    assert seen.contains(known)


@for_each("value", ["1.5::DOUBLE", "true", "1.5::DECIMAL(9, 1)", "DATE '2026-11-28'"])
def test_duckdb_refuses_a_column_that_is_no_item(value: str, seen: BloomFilter) -> None:
    """The error names the type."""
    connection = duckdb.connect()
    register(connection, seen)
    with pytest.raises(duckdb.Error, match="an item is str, bytes or int, not"):
        connection.execute(f"SELECT is_new({value})").fetchall()


def test_a_relation_of_duckdb_may_be_used_again(seen: BloomFilter) -> None:
    """With a job each use has the same answer, and another job has none of its rows."""
    connection = duckdb.connect()
    for job in ("one", "two"):
        register(connection, seen, f"is_of_{job}", job=job)
    query = "SELECT DISTINCT id FROM (SELECT 'e' || (range % 500) AS id FROM range(20000)) WHERE is_of_{}(id)"
    relation = connection.sql(query.format("one"))
    assert "500 rows" in str(relation)
    assert [len(relation.fetchall()), len(relation.fetchall())] == [500, 500]
    assert connection.sql(query.format("two")).fetchall() == []


def test_a_query_has_no_rows(seen: BloomFilter) -> None:
    """A query that would run at each use is refused by its name; a job may be used in one twice."""
    lazy = pl.LazyFrame({"url": ["a", "b", "a"]})
    for select in (NewRows(seen, "url"), AbsentRows(seen, "url"), KeptRows(seen, "url", job="november")):
        with pytest.raises(TypeError, match=f"^{type(select).__name__} takes a batch, not a LazyFrame"):
            select(lazy)
    kept = lazy.map_batches(KeptRows(seen, "url", job="november"))
    assert [kept.collect()["url"].to_list() for _ in range(2)] == [["a", "b"]] * 2


@for_each("kind", [NewRows, AbsentRows, KeptRows])
def test_rows_that_dask_makes_up_are_not_added(kind: Any, any_server: Server) -> None:
    """It asks for the columns of the result with them."""
    import dask.dataframe as dd

    seen = BloomFilter.from_url(any_server.url, kind.__name__, capacity=1000, error_rate=1e-9)
    select = kind(seen, "url", **({"job": "november"} if kind is KeptRows else {}))
    frame = dd.from_pandas(pd.DataFrame({"url": ["a", "b", "a"]}), npartitions=1)
    found = frame.map_partitions(select.partition).compute(scheduler="sync")
    assert sorted(found["url"]) == ["a", "b"]
    seen.create()
    assert seen.info().count == {NewRows: 2, AbsentRows: 0, KeptRows: 4}[kind]


class Frame:
    """The part of a Spark data frame that `foreach_batch` uses; each use computes the batches again."""

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

    def filter(self, condition: str) -> Frame:
        found = re.fullmatch(r"`(\w+)` IS (NOT )?NULL", condition)
        assert found

        def made() -> list[pa.RecordBatch]:
            return [
                pa.RecordBatch.from_pylist([row], schema=batch.schema)
                for batch in self.collect()
                for row in batch.to_pylist()
                if (row[found[1]] is None) != bool(found[2])
            ]

        return Frame(made)

    def union(self, other: Frame) -> Frame:
        return Frame(lambda: self.collect() + other.collect())

    def select(self, column: str) -> Frame:
        return Frame(lambda: [batch.select([column]) for batch in self.collect()])

    def persist(self) -> Frame:
        return self  # a cache that lost everything

    def unpersist(self) -> None:
        self.unpersisted = True


class Sink:
    """The batches that were written, by their numbers."""

    def __init__(self) -> None:
        self.batches: dict[int, list[str]] = {}
        self.fails_after = False

    def write(self, frame: Any, number: int) -> None:
        """Write a batch, unless it is written."""
        if number in self.batches:
            return
        frame.collect()  # the partition is run again
        self.batches[number] = [item for batch in frame.collect() for item in batch["id"].to_pylist()]
        if self.fails_after:
            raise OSError("the driver is gone")

    @property
    def written(self) -> list[str]:
        return sorted(item for batch in self.batches.values() for item in batch)


def spark(*items: str | None) -> Frame:
    """Return a frame with a column `id`."""
    return Frame(lambda: [pa.RecordBatch.from_pydict({"id": list(items)})])


def test_a_stream_writes_each_row_once(seen: BloomFilter) -> None:
    """Across batches, although each partition is run several times."""
    sink = Sink()
    handle = foreach_batch(seen, "id", sink.write)
    handle(spark("a", "b", "a"), 1)
    handle(spark("b", "c"), 2)
    assert sink.written == ["a", "b", "c"]


@pytest.mark.parametrize("added", [[], ["a"]])
def test_a_batch_that_failed_after_its_write_comes_again(seen: BloomFilter, added: list[str]) -> None:
    """It comes with the same number, and without the rows that it has added by then."""
    sink = Sink()
    handle = foreach_batch(seen, "id", sink.write)
    sink.fails_after = True
    with pytest.raises(OSError, match="driver is gone"):
        handle(spark("a", "b"), 1)
    sink.fails_after = False
    seen.add_many(added)  # as a partition did
    handle(spark("a", "b"), 1)
    handle(spark("b", "c"), 2)
    assert sink.written == ["a", "b", "c"]


@for_each(("missing", "nulls"), [("keep", 2), ("drop", 0)])
def test_a_stream_has_rows_without_an_item(any_server: Server, missing: Any, nulls: int) -> None:
    """All of them are written, or none."""
    seen = BloomFilter.from_url(any_server.url, "seen", capacity=100, error_rate=1e-9)
    sink = Sink()
    foreach_batch(seen, "id", sink.write, missing=missing)(spark("a", None, "a", None), 1)
    assert Counter(sink.batches[1]) == Counter({"a": 1, None: nulls} if nulls else {"a": 1})


def test_the_page_runs(any_server: Server) -> None:
    """Each example of the page runs."""
    pages.run("columns", any_server)
