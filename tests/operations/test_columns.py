"""Items of numpy, pandas and Arrow: scalars, columns, tables and nulls."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import redis

from bloomredis import BatchInterruptedError, BloomFilter, compat, keyed
from tests.support.proxy import lost, passed, proxied
from tests.support.servers import Server
from tests.support.values import for_each

SCALARS = [
    (np.int64(7), 7),
    (np.uint8(7), 7),
    (np.str_("a"), "a"),
    (np.bytes_(b"a"), "a"),
    (pa.scalar("ä"), "ä"),
    (pa.scalar(b"a"), b"a"),
    (pa.scalar(-3), -3),
]
KINDS = ["BloomFilter", "ScalingBloomFilter", "CountingBloomFilter", "ShardedBloomFilter"]
TABLES = [
    pd.DataFrame({"id": [1, 2], "name": ["a", "b"]}),
    pa.table({"id": [1, 2]}),
    np.zeros((2, 2), dtype=np.int64),
]
COLUMNS = [
    np.array([5, 6]),
    np.array(["5", "6"]),
    pd.Series([5, 6], dtype="Int64", index=["x", "y"]),
    pd.Series(["5", "6"], index=[1, 0]),
    pa.array([5, 6]),
    pa.chunked_array([["5"], ["6"]]),
]
DIGESTS = [b"one\0", b"two!", b"\0\0\0\0"]
"""Items of four bytes, of which an array of dtype S drops the zeros at the end."""
NULLS = [
    pd.Series(["a", None, "b"]),
    pd.Series([1, None, 3], dtype="Int64"),
    pa.array(["a", None]),
    np.array(["a", None], dtype=object),
    ["a", None],
    ["a", float("nan")],
]
VERBS = [
    "add_many",
    "contains_many",
    "claim_many",
    "update",
    "dedupe",
    "add_mask",
    "contains_mask",
]


def make(bloom: Any, client: Any, **options: Any) -> Any:
    return bloom(client, "seen", **{"capacity": 10_000, "error_rate": 0.001} | options)


def call(f: Any, verb: str, items: Any) -> None:
    """Make a call that takes items, and wait for it."""
    answers = getattr(f, verb)(items)
    if verb == "dedupe":
        list(answers)


@for_each("verb", VERBS)
def test_bytes_of_numpy_that_may_have_lost_their_end_are_refused(
    bloom: Any, any_client: redis.Redis, verb: str
) -> None:
    """The error names the row and the way out; dtype V and objects have all bytes."""
    f = make(bloom, any_client)
    lost = np.array(DIGESTS)
    for array, row in ((lost, 0), (lost[1:], 1), (lost[::-2], 0)):
        with pytest.raises(TypeError, match=rf"row {row}: .*dtype S4.*view\('V4'\).*astype\(object\)"):
            call(f, verb, array)
    assert any_client.keys() == []
    for whole in (np.array(["1234", "5678"], dtype="S"), lost.view("V4"), np.array(DIGESTS, dtype=object)):
        call(f, verb, whole)
    if verb in {"add_many", "update", "dedupe", "add_mask"}:
        assert f.contains_many(["1234", *DIGESTS]) == [True] * 4


@for_each("kind", KINDS)
def test_a_scalar_is_what_it_holds(bloom: Any, any_client: redis.Redis, kind: str) -> None:
    """A scalar of numpy or Arrow is the same item as Python's own object, in every call."""
    f = make(bloom, any_client, kind=kind)
    for scalar, item in SCALARS:
        f.add(scalar)
        assert f.contains(item)
        assert f.contains(scalar)
        assert f.add_many([scalar, item]) == [False, False]
        assert f.claim(scalar).state == "done"


def test_a_foreign_layout_gets_what_a_scalar_holds(any_client: redis.Redis) -> None:
    """To Guava an int is a long, and so is a numpy int."""
    layout: Any = compat.guava(1000, 0.01)
    f = BloomFilter(any_client, "g", layout=layout)
    f.add(np.int64(7))
    assert [f.contains(7), f.contains("7")] == [True, False]


def test_keyed_takes_scalars() -> None:
    """`keyed` accepts scalars too."""
    encode = keyed("0123456789abcdef")
    assert encode(np.int64(7)) == encode("7")


@for_each("item", [np.bool_(1), np.float64(1.5), pa.scalar(1.5), pa.scalar(True), True, 1.5])
def test_other_scalars_are_refused(item: Any) -> None:
    """They are refused like Python's own bools and floats."""
    f = make(BloomFilter, redis.Redis())
    with pytest.raises(TypeError, match="an item is str, bytes or int, not"):
        f.add(item)


@for_each("verb", VERBS)
@for_each("column", COLUMNS)
def test_a_column_is_its_items(bloom: Any, any_client: redis.Redis, verb: str, column: Any) -> None:
    """Every call that takes items accepts a column, by position."""
    f = make(bloom, any_client)
    f.add_many([5, 6])
    call(f, verb, column)
    assert f.add_many(column) == [False, False]
    assert f.contains_many(column) == [True, True]
    assert f.info().count == 2


@for_each("verb", VERBS)
@for_each("table", TABLES)
def test_a_table_is_refused(bloom: Any, verb: str, table: Any) -> None:
    """The error asks for a column, and nothing is sent."""
    with pytest.raises(TypeError, match="give a column"):
        call(make(bloom, redis.Redis(port=1)), verb, table)


@for_each("verb", VERBS)
@for_each("column", NULLS)
def test_a_null_gives_its_row(bloom: Any, any_client: redis.Redis, verb: str, column: Any) -> None:
    """The error names the null's row, counted from 0 like `iloc`."""
    with pytest.raises(TypeError, match=r"^row 1: .* a null \((None|nan|<NA>)\)"):
        call(make(bloom, any_client), verb, column)


@pytest.mark.parametrize("verb", ["update", "dedupe", "add_mask"])
def test_rows_are_counted_over_all_batches(bloom: Any, any_client: redis.Redis, seed: int, verb: str) -> None:
    """Rows are counted from the start of the column, not of the batch, for every kind of filter."""
    f = make(bloom, any_client, kind=KINDS[seed % len(KINDS)], error_rate=0.5)
    items = [*map(str, range(17_000)), None]
    with pytest.raises(TypeError, match=r"^row 17000: "):
        call(f, verb, items)


def test_an_own_encoder_tells_the_row(any_client: redis.Redis) -> None:
    """The encoder's error is the cause of the error with the row."""

    def encode(item: str) -> bytes:
        return int(item).to_bytes(8, "big")

    f = BloomFilter(any_client, "own", capacity=10, error_rate=0.1, encode=encode)
    with pytest.raises(ValueError, match="row 2: invalid literal") as caught:
        f.add_many(["1", "2", "x"])
    assert isinstance(caught.value.__cause__, ValueError)


@for_each("column", COLUMNS)
def test_a_mask_says_of_each_row_if_it_is_new(bloom: Any, any_client: redis.Redis, column: Any) -> None:
    """The mask is an array of bools by position; of equal rows the first is new."""
    f = make(bloom, any_client)
    f.add(6)
    assert f.contains_mask(column).tolist() == [False, True]
    mask = f.add_mask(column)
    assert (mask.dtype, mask.tolist()) == (np.bool_, [True, False])
    twice = np.array(["x", "x"])
    assert twice[f.add_mask(twice)].tolist() == ["x"]


def test_a_column_of_polars(bloom: Any, any_client: redis.Redis) -> None:
    """A column of polars works where polars is installed."""
    polars = pytest.importorskip("polars")
    f = make(bloom, any_client)
    frame = polars.DataFrame({"url": ["a", "b", "a"]})
    assert frame.filter(polars.Series(f.add_mask(frame["url"])))["url"].to_list() == ["a", "b"]
    assert f.contains_mask(frame["url"]).all()


def test_a_mask_of_many_batches(any_client: redis.Redis) -> None:
    """The mask has a place for each row, and is empty for no rows."""
    f = make(BloomFilter, any_client)
    f.add_many(range(0, 40_000, 1000))
    mask = f.contains_mask(np.arange(40_000))
    assert mask[::1000].all()
    assert mask.sum() < 200
    assert f.add_mask(pa.array([], type=pa.string())).tolist() == []


def test_an_interrupted_mask_has_the_rest_of_the_column(any_server: Server) -> None:
    """The error has the answers so far and the remaining rows; a retry of those loses nothing."""
    column = pd.Series([f"{i}" for i in range(40_000)], index=range(40_000, 0, -1))
    with proxied(any_server.socket) as proxy:
        f = BloomFilter(proxy.client(), "seen", capacity=100_000, error_rate=0.001)
        f.add_many(["warm", "up"])
        proxy.plan("add", *[passed] * 40, lost)
        with pytest.raises(BatchInterruptedError, match=r"add_mask\(error.rest\)") as met:
            f.add_mask(column)
        answered = len(met.value.results)
        assert 0 < answered < 40_000
        assert met.value.rest.equals(column.iloc[answered:])  # type: ignore[attr-defined]  # a column
        mask = [*met.value.results, *f.add_mask(met.value.rest)]
    assert np.mean(mask) > 0.99  # but for false positives


@for_each("column", [iter("ab"), {"a", "b"}, 7])
def test_what_has_no_rows_has_no_mask(bloom: Any, column: Any) -> None:
    """A value without rows is refused, and nothing is sent."""
    with pytest.raises(TypeError, match="add_mask takes an array or a column, not"):
        make(bloom, redis.Redis(port=1)).add_mask(column)
