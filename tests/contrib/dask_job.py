"""A Dask job in a process of its own: it counts and then writes the new rows of files.

Its end is a file, since Dask may wait for ever for the workers that it ends on a busy machine.  A worker that
was killed has as long as the test to come back: after 15 seconds Dask would do without it, and wait for ever.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

import dask.config
import dask.dataframe
import distributed

from bloomredis import BloomFilter
from bloomredis.contrib.columns import KeptRows
from tests.support.waiting import PATIENCE

KILLED = (2, 5)
"""Partitions whose worker is killed once, when it has kept their rows."""

RETRIES = 50
"""Retries of a partition whose call failed, since a busy machine may take long to start the server again."""


class Dies:
    """A function that keeps the rows of a partition; some workers are killed before they return them."""

    def __init__(self, kept: KeptRows, folder: Path) -> None:
        self._kept = kept
        self._folder = folder

    def __call__(self, frame: Any, partition_info: dict[str, Any] | None = None) -> Any:
        """Return the rows that a partition keeps."""
        rows = self._kept.partition(frame, partition_info)
        number = partition_info["number"] if partition_info else None
        mark = self._folder / f"killed-{number}"
        if number in KILLED and not mark.exists():
            mark.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        if number is not None:
            time.sleep(0.2)  # the work
        return rows


def main() -> None:
    """Run the job."""
    url, folder = sys.argv[1], Path(sys.argv[2])
    seen = BloomFilter.from_url(url, "texts", capacity=20_000, error_rate=1e-9)
    dask.config.set({"distributed.deploy.lost-worker-timeout": f"{PATIENCE} s"})
    options = {"n_workers": 2, "threads_per_worker": 1, "dashboard_address": None, "host": "127.0.0.1"}
    with distributed.LocalCluster(**options) as cluster, distributed.Client(cluster) as client:
        frame = dask.dataframe.read_parquet(str(folder / "in"))
        kept = frame.map_partitions(Dies(KeptRows(seen, "text", job="november"), folder))
        assert client.compute(kept.shape[0], retries=RETRIES).result() > 0
        client.compute(kept.to_parquet(str(folder / "out"), compute=False), retries=RETRIES).result()
        (folder / "done").touch()


if __name__ == "__main__":
    main()
