"""Import and constructors of this checkout beside another one: `python -m benchmarks.light OTHER`.

OTHER is the folder of another checkout, or an interpreter with the library installed.  Each measurement is a
process of its own, and both sides take turns.  All times are of the processor, of the import beyond
`import redis`.  All modules are compiled before, as an installer does it.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from benchmarks.runner import versions

_ROOT: Final = Path(__file__).parents[1]
_MOST_IMPORT_MS: Final = 60.0
_MOST_CONSTRUCTOR: Final = 0.5  # of the other side's time
_CONSTRUCTED: Final = 500
_PROGRAM: Final = f"""
import gc, json, time
import redis, redis.asyncio
began = time.process_time()
from bloomredis import BloomFilter
found = {{"import": (time.process_time() - began) * 1e3}}
import bloomredis, bloomredis.asyncio
SIZE = {{"capacity": 1_000_000, "error_rate": 0.01}}
KINDS = {{f"{{kind}}BloomFilter": SIZE for kind in ("", "Counting", "Scaling", "Sharded")}}
KINDS["RotatingBloomFilter"] = SIZE | {{"window": 3600}}
for half, client in ((bloomredis, redis.Redis()), (bloomredis.asyncio, redis.asyncio.Redis())):
    for kind, parameters in KINDS.items():
        make = getattr(half, kind)
        make(client, "first", **parameters)
        gc.collect()
        began = time.process_time()
        for _ in range({_CONSTRUCTED}):
            make(client, "seen", **parameters)
        took = (time.process_time() - began) / {_CONSTRUCTED} * 1e6
        found[f"{{kind}}{{' of asyncio' if half is bloomredis.asyncio else ''}}"] = took
print(json.dumps(found))
"""
"""Prints milliseconds of the import, and microseconds of each constructor."""


@dataclass(frozen=True)
class Side:
    """An interpreter, and the checkout that it imports; None for what it has installed."""

    interpreter: str
    checkout: Path | None

    def measured(self, compiled: str) -> dict[str, float]:
        """Run the program once; return its figures."""
        kept = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
        own = {"PYTHONPATH": str(self.checkout)} if self.checkout else {}
        done = subprocess.run(
            [self.interpreter, "-c", _PROGRAM],
            stdout=subprocess.PIPE,
            cwd=compiled,
            env=kept | own | {"PYTHONPYCACHEPREFIX": compiled},
            check=True,
        )
        found: dict[str, float] = json.loads(done.stdout)
        return found


def main() -> None:
    """Let the sides take turns, and print both and their ratio."""
    parser = argparse.ArgumentParser("python -m benchmarks.light", description=__doc__)
    parser.add_argument("other", type=Path, help="another checkout, or a Python interpreter")
    parser.add_argument("--rounds", type=int, default=15)
    options = parser.parse_args()
    other = options.other.absolute()
    sides = (
        Side(sys.executable, _ROOT),
        Side(sys.executable, other) if other.is_dir() else Side(str(other), None),
    )
    about = versions.machine()
    print(f"Python {about['python']}; {about['cores']} cores of {about['cpu']}, {about['date']}")
    with tempfile.TemporaryDirectory() as compiled:
        for side in sides:
            side.measured(compiled)
        rounds = [_round(sides[:: 1 if i % 2 else -1], compiled) for i in range(options.rounds)]
    for line in table(*([each[side] for each in rounds] for side in sides)):
        print(line)


def _round(sides: Sequence[Side], compiled: str) -> Mapping[Side, dict[str, float]]:
    return {side: side.measured(compiled) for side in sides}


def table(ours: Sequence[dict[str, float]], others: Sequence[dict[str, float]]) -> list[str]:
    """Return the lines of the figures: medians, and the median of the ratios of the rounds."""
    lines = [f"{'':<36}{'this':>9}{'other':>9}{'ratio':>8}"]
    for name in ours[0]:
        own, other = ([each[name] for each in side] for side in (ours, others))
        ratio = statistics.median(x / y for x, y in zip(own, other, strict=True))
        mine = statistics.median(own)
        is_import = name == "import"
        is_met = mine <= _MOST_IMPORT_MS if is_import else ratio <= _MOST_CONSTRUCTOR
        limit = f"≤ {_MOST_IMPORT_MS:g} ms" if is_import else f"ratio ≤ {_MOST_CONSTRUCTOR:g}"
        what = "import, ms" if is_import else f"{name}, µs"
        lines.append(
            f"{what:<36}{mine:9.1f}{statistics.median(other):9.1f}{ratio:8.2f}  {limit} "
            f"{'met' if is_met else 'not met'}"
        )
    return lines


if __name__ == "__main__":
    main()
