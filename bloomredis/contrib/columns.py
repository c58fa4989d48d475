"""Rows that are new, of batches of pandas, polars and Arrow; for DuckDB, Ray and Spark too."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bloomredis.contrib import missing

try:
    import pyarrow as pa
except ImportError as error:
    raise missing("columns", "pyarrow") from error


def rows(batch: Any, mask: NDArray[np.bool_]) -> Any:
    """Return the rows of a batch where a mask is true, as a batch of the same kind.

    :param batch: a table or record batch of Arrow, or a data frame of pandas or polars.
    """
    if isinstance(batch, pa.Table | pa.RecordBatch):
        return batch.filter(pa.array(mask))
    return batch.loc[mask] if hasattr(batch, "iloc") else batch.filter(mask)


class NewRows:
    """A callable that adds a column of a batch to a filter, and returns the rows that were new.

    For `Dataset.map_batches` of Ray, and wherever a batch is handled once.  An engine that runs a batch
    again, as Spark does with a partition, finds the items of the first run in the filter: see `AbsentRows`.

    :param seen: a filter made by `from_url`, if other processes are to run it.
    :param column: the name of the column.
    """

    def __init__(self, seen: Any, column: str) -> None:
        self._seen = seen
        self._column = column

    def __call__(self, batch: Any) -> Any:
        """Return the rows of a batch that were new."""
        return rows(batch, self._seen.new_mask(batch[self._column]))


class AbsentRows:
    """A callable that returns the rows whose item is not in a filter, of which each item once.

    Nothing is added, so a batch may be run again.  Equal items in two batches are in both results.
    """

    def __init__(self, seen: Any, column: str) -> None:
        self._seen = seen
        self._column = column

    def __call__(self, batch: Any) -> Any:
        """Return the rows of a batch that are not in the filter."""
        column = batch[self._column]
        mask = ~self._seen.contains_mask(column)
        if mask.any():
            mask[mask] = _first(rows(batch, mask)[self._column])
        return rows(batch, mask)

    def each(self, batches: Iterable[Any]) -> Iterator[Any]:
        """Yield the result for each batch: the function for `mapInArrow`."""
        return map(self, batches)


class Added:
    """A callable that adds a column of batches to a filter: for rows that are safe where they belong."""

    def __init__(self, seen: Any, column: str) -> None:
        self._seen = seen
        self._column = column

    def each(self, batches: Iterable[Any]) -> Iterator[Any]:
        """Add batches; yield for each a record batch with its number of rows: for `mapInArrow`."""
        for batch in batches:
            self._seen.new_mask(batch[self._column])
            yield pa.RecordBatch.from_pydict({"rows": [len(batch)]})


def foreach_batch(seen: Any, column: str, write: Callable[[Any, int], object]) -> Callable[[Any, int], None]:
    """Return a function for `foreachBatch` of a Spark stream: it writes rows whose item was never written.

    A row is looked up, written, and added after the write, so that whatever is run again, a partition or the
    batch, loses nothing.  A batch that failed after its write comes again under the same number, and `write`
    has to be idempotent by it, as with any sink of Spark's.

    :param seen: a filter made by `from_url`.
    :param column: the name of the column, a string or a number.
    :param write: takes a data frame and the number of the batch, and returns when its rows are safe.
    """
    absent, added = AbsentRows(seen, column), Added(seen, column)

    def handle(frame: Any, number: int) -> None:
        new = frame.dropDuplicates([column]).mapInArrow(absent.each, frame.schema).persist()
        try:
            write(new, number)
            new.select(column).mapInArrow(added.each, "rows long").collect()
        finally:
            new.unpersist()

    return handle


def register(connection: Any, seen: Any, name: str = "is_new") -> None:
    """Give a connection of DuckDB a function of a VARCHAR that adds it to a filter; true where it was new.

    ``SELECT * FROM pages WHERE is_new(url)``.  DuckDB evaluates it for the rows that it reads, in several
    threads: other conditions of the query may be evaluated after it, so have them in a query below.

    :param name: of the function.
    """

    def is_new(column: Any) -> Any:
        return pa.array(seen.new_mask(column))

    connection.create_function(name, is_new, ["VARCHAR"], "BOOLEAN", type="arrow", side_effects=True)


def _first(column: Any) -> NDArray[np.bool_]:
    """Return a mask of the first of equal rows of a column."""
    items = column.to_pylist() if hasattr(column, "to_pylist") else list(column)
    first = dict(zip(reversed(items), range(len(items) - 1, -1, -1), strict=True))
    mask = np.zeros(len(items), dtype=bool)
    mask[list(first.values())] = True
    return mask
