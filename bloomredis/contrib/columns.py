"""New rows of batches of pandas, polars and Arrow, also in DuckDB, Ray, Dask and Spark."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from hashlib import blake2b
from math import isnan
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from bloomredis.contrib import needs
from bloomredis.contrib._flavours import require_sync
from bloomredis.contrib._items import Missing, checked
from bloomredis.contrib._kept import Kept

with needs("columns", "pyarrow"):
    import pyarrow as pa


__all__ = ["AbsentRows", "Added", "KeptRows", "NewRows", "foreach_batch", "register"]


def rows(batch: Any, mask: NDArray[np.bool_]) -> Any:
    """Return the rows of a batch for which a mask is true, as a batch of the same kind.

    :param batch: a table or record batch of Arrow, a data frame of pandas or polars, or a dict of arrays of
        numpy, as of Ray; or one of their columns.
    """
    if isinstance(batch, dict):
        return {name: rows(column, mask) for name, column in batch.items()}
    if isinstance(batch, np.ndarray):
        return batch[mask]
    if isinstance(batch, pa.Table | pa.RecordBatch | pa.Array | pa.ChunkedArray):
        return batch.filter(pa.array(mask))
    return batch.loc[mask] if hasattr(batch, "iloc") else batch.filter(mask)


LAZY: Final = frozenset(("LazyFrame", "DuckDBPyRelation"))
"""The names of types that are queries: they have no rows before they are run."""
HUGE: Final = 38
"""The number of digits of HUGEINT, which is a decimal for Arrow."""


class _Column:
    """A column of batches whose values are items of a filter."""

    def __init__(self, seen: Any, column: str, *, missing: Missing = "raise") -> None:
        require_sync(seen, type(self).__name__)
        self._seen = seen
        self._column = column
        self._missing = checked(missing)

    def _rows(self, batch: Any, ask: Callable[[Any], NDArray[np.bool_]]) -> Any:
        """Return the rows of a batch for which a function of its column is true."""
        return rows(batch, _mask(batch[self._column], self._missing, ask))

    def __call__(self, batch: Any) -> Any:
        """Return the rows of a batch that this object selects."""
        if (kind := type(batch).__name__) in LAZY:
            raise TypeError(
                f"{type(self).__name__} takes a batch, not a {kind}, which runs again at each use: store its "
                "result first, as collect() does"
            )
        return self._select(batch)

    def _select(self, batch: Any) -> Any:
        raise NotImplementedError

    def partition(self, frame: Any, partition_info: dict[str, Any] | None = None) -> Any:
        """Return the rows of a partition; for `map_partitions` of Dask, which first makes up some rows.

        Dask numbers the partitions of a selection from 0, so only the rows identify a partition.
        """
        return frame if partition_info is None else self(frame)

    def each(self, batches: Iterable[Any]) -> Iterator[Any]:
        """Yield the rows of each batch; for `mapInArrow` of Spark."""
        return map(self, batches)


class NewRows(_Column):
    """A callable that adds a column of a batch to a filter, and returns the rows that were new.

    Use it if each batch is handled once.  If an engine runs a batch again, after a failure or for another use
    of the result, it finds the items of the first run in the filter: use `KeptRows`.

    :param seen: a filter; if other processes run the callable, a filter made by `from_url`.
    :param column: the name of the column.
    :param missing: treatment of a row whose item is null: "keep" or "drop" it, or "raise" an error that names
        the row.
    """

    def _select(self, batch: Any) -> Any:
        return self._rows(batch, self._seen.add_mask)


class KeptRows(_Column):
    """A callable that keeps the rows of a batch that no other batch of a job keeps; a rerun keeps the same.

    It is for engines that run a part again, after a failure or for another use of the result:
    `Dataset.map_batches` of Ray, `map_partitions` of Dask (`partition`) and `mapInArrow` of Spark (`each`).

    A part is identified by the job and by all values of its rows, in any order; in Spark, by the job and the
    number of its partition.  So two batches with the same values are one part, and both return its rows.  If
    a part is dropped, the rows that other parts dropped in its favour are missing.  Each kept row is two
    items of the filter.

    :param seen: a filter made by `from_url`, without `encode=`.
    :param column: the name of a column of strings, bytes or integers.
    :param job: a name for this run of the pipeline over its input.  If you start the pipeline again with the
        same input in the same parts, it may continue under the same name; any other run needs another name.
    :param unit: returns the name of a batch: the same whenever the batch is run, and a different one for each
        batch.
    :param missing: treatment of a row whose item is null: see `NewRows`.
    :param lease: if a part dies while it claims a row, another part may take the row after so many seconds.
        If the part is run again later than that, both may return the row.
    """

    def __init__(
        self,
        seen: Any,
        column: str,
        *,
        job: str,
        unit: Callable[[Any], str] | None = None,
        missing: Missing = "raise",
        lease: float = 3600.0,
    ) -> None:
        super().__init__(seen, column, missing=missing)
        if not job:
            raise ValueError("job must not be empty: it identifies parts that are run again")
        self._job = job
        self._unit = unit
        self._lease = lease

    def _select(self, batch: Any) -> Any:
        return self._kept_of(batch, self._of(f"batch {(self._unit or _digest)(batch)}"))

    def each(self, batches: Iterable[Any]) -> Iterator[Any]:
        """Yield the rows that each batch of a partition keeps; for `mapInArrow` of Spark."""
        number = _partition_of_spark()
        if number is None:
            yield from map(self, batches)
            return
        kept = self._of(f"partition {number}")
        for batch in batches:
            yield self._kept_of(batch, kept)

    def _of(self, part: str) -> Kept:
        return Kept(self._seen, f"{self._job}: {part}", self._lease)

    def _kept_of(self, batch: Any, kept: Kept) -> Any:
        def ask(column: Any) -> NDArray[np.bool_]:
            if isinstance(column, np.ndarray) and column.dtype.kind == "S":
                self._seen.contains_mask(column)  # raises if items may have lost their end
            return np.array(kept.mask(_listed(column)), dtype=bool)

        return self._rows(batch, ask)


class AbsentRows(_Column):
    """A callable that returns the rows whose item is not in a filter; of equal items, the first row.

    It adds nothing, so a batch may be run again.  If two batches have equal items, both results have them.

    :param missing: treatment of a row whose item is null: see `NewRows`.
    """

    def _select(self, batch: Any) -> Any:
        return self._rows(batch, lambda column: ~self._seen.contains_mask(column) & _first(column))


class Added(_Column):
    """A step that adds a column of batches to a filter, once their rows are written."""

    def each(self, batches: Iterable[Any]) -> Iterator[Any]:
        """Add batches; yield for each a record batch with its number of rows; for `mapInArrow`."""
        for batch in batches:
            self._rows(batch, self._seen.add_mask)
            yield pa.RecordBatch.from_pydict({"rows": [len(batch)]})


def foreach_batch(
    seen: Any, column: str, write: Callable[[Any, int], object], *, missing: Missing = "raise"
) -> Callable[[Any, int], None]:
    """Return a function for `foreachBatch` of a Spark stream; it writes rows whose item was never written.

    A row is looked up, written, and added after the write.  So no row is lost if a partition or the batch is
    run again.  A batch that fails after its write comes again under the same number, without the rows that it
    has added by then.  So `write` must do nothing for a number whose write has ended; it must not replace it.

    :param seen: a filter made by `from_url`.
    :param column: the name of the column, a string or a number.
    :param write: takes a data frame and the number of the batch, and returns once the rows are stored.
    :param missing: treatment of a row whose item is null: see `NewRows`.
    """
    require_sync(seen, "foreach_batch()")
    absent, added = AbsentRows(seen, column, missing=missing), Added(seen, column, missing=missing)

    def handle(frame: Any, number: int) -> None:
        distinct = frame.dropDuplicates([column])  # of all nulls one
        if missing == "keep":
            distinct = distinct.filter(f"`{column}` IS NOT NULL").union(frame.filter(f"`{column}` IS NULL"))
        new = distinct.mapInArrow(absent.each, frame.schema).persist()
        try:
            write(new, number)
            new.select(column).mapInArrow(added.each, "rows long").collect()
        finally:
            new.unpersist()

    return handle


def register(
    connection: Any, seen: Any, name: str = "is_new", *, missing: Missing = "raise", job: str | None = None
) -> None:
    """Give a connection of DuckDB a function that adds an item to a filter and returns whether it was new.

    ``CREATE TABLE new AS SELECT * FROM pages WHERE is_new(url)``.  The item is a text, a whole number (also a
    HUGEINT), a UUID or a BLOB.  DuckDB evaluates the function for the rows that it reads, in several threads.
    It may evaluate other conditions of the query afterwards, so put these into a subquery.

    A relation is a query, which runs again at each use, and then finds its own items.  So store its result,
    or give `job`: then the function is true for each row whose item no other job has, however often it runs.

    :param name: the name of the function.
    :param missing: its answer to NULL: "keep" for true, "drop" for false, or "raise" an error.
    :param job: a name for this use of the filter, as of `KeptRows`; equal rows of the job have one answer.
    """
    require_sync(seen, "register()")
    checked(missing)
    lock = threading.Lock()  # a job must not meet its own claims

    def kept(column: Any) -> NDArray[np.bool_]:
        items = _listed(column)
        distinct = list(dict.fromkeys(items))
        with lock:
            mask = Kept(seen, str(job), 3600.0).mask(distinct)
        answers = dict(zip(distinct, mask, strict=True))
        return np.array([answers[item] for item in items], dtype=bool)

    def is_new(*columns: Any) -> Any:
        (column,) = columns  # DuckDB takes a column of any type for it
        if pa.types.is_decimal(column.type) and (column.type.precision, column.type.scale) == (HUGE, 0):
            column = [each if each is None else int(each) for each in column.to_pylist()]
        return pa.array(_mask(column, missing, seen.add_mask if job is None else kept))

    connection.create_function(
        name, is_new, None, "BOOLEAN", type="arrow", side_effects=True, null_handling="special"
    )


def _mask(column: Any, missing: Missing, ask: Callable[[Any], NDArray[np.bool_]]) -> NDArray[np.bool_]:
    """Return the answers of a function for the rows of a column; for nulls, what `missing` says."""
    nulls = _nulls(column) if missing != "raise" else None  # the filter names the row of a null
    if nulls is None or not nulls.any():
        return ask(column)
    mask = np.full(len(nulls), missing == "keep")
    try:
        mask[~nulls] = ask(rows(column, ~nulls))
    except (TypeError, ValueError) as error:
        error.add_note("rows that are null are not counted")
        raise
    return mask


def _nulls(column: Any) -> NDArray[np.bool_]:
    """Return a mask of a column: true for nulls."""
    for method in ("isna", "is_null"):  # pandas; Arrow and polars
        if hasattr(column, method):
            return np.asarray(getattr(column, method)(), dtype=bool)
    return np.array([each is None or (isinstance(each, float) and isnan(each)) for each in _listed(column)])


def _first(column: Any) -> NDArray[np.bool_]:
    """Return a mask of a column: true for the first of equal rows."""
    items = _listed(column)
    first = dict(zip(reversed(items), range(len(items) - 1, -1, -1), strict=True))
    mask = np.zeros(len(items), dtype=bool)
    mask[list(first.values())] = True
    return mask


def _listed(column: Any) -> list[Any]:
    """Return the values of a column as Python objects."""
    for method in ("to_pylist", "tolist", "to_list"):
        if hasattr(column, method):
            values: list[Any] = getattr(column, method)()
            return values
    return list(column)


def _digest(batch: Any) -> str:
    """Return a digest of the rows of a batch, in any order.

    The bytes in Arrow's buffers would not do, since those of a null are arbitrary.
    """
    if isinstance(batch, pa.Table | pa.RecordBatch):
        table = batch
    elif isinstance(batch, dict):
        table = pa.table({name: _listed(column) for name, column in batch.items()})
    elif hasattr(batch, "to_arrow"):
        table = batch.to_arrow()
    else:
        table = pa.Table.from_pandas(batch, preserve_index=False)
    columns = table.to_pydict()
    values = sorted(map(repr, zip(*columns.values(), strict=True)))
    return blake2b(repr(([*columns], values)).encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()


def _partition_of_spark() -> int | None:
    """Return the number of the partition of this Spark task; None outside Spark."""
    spark = sys.modules.get("pyspark")
    context = spark.TaskContext.get() if spark is not None else None
    return None if context is None else int(context.partitionId())
