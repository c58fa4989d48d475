"""Hand-written filters: a plain bitmap, set bit by bit or by a small script."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import mmh3

from benchmarks.runner.bench import Bench
from benchmarks.sides.peer import CAPACITY, RATE, Peer
from bloomredis.bits import sizing


class _Bitmap(Peer):
    """Bits under one key, allocated at once; offsets by double hashing in plain Python."""

    def __init__(
        self, bench: Bench, *, capacity: int = CAPACITY, error_rate: float = RATE, suffix: str = ""
    ) -> None:
        self.client = bench.client
        self.key = f"{self.name}{suffix}"
        self.num_bits = sizing.num_bits(capacity, error_rate)
        self.num_hashes = sizing.num_hashes(self.num_bits, capacity)
        self.client.setbit(self.key, self.num_bits - 1, 0)

    def offsets(self, item: str) -> list[int]:
        """Return the offsets of the item's bits."""
        one, two = mmh3.hash64(item, signed=False)
        return [(one + i * two) % self.num_bits for i in range(self.num_hashes)]

    def add_each(self, items: Sequence[str]) -> list[bool]:
        return [self.add_many([item])[0] for item in items]

    def contains_each(self, items: Sequence[str]) -> list[bool]:
        return [self.contains_many([item])[0] for item in items]

    def _all_set(self, replies: list[Any]) -> list[bool]:
        k = self.num_hashes
        return [all(replies[start : start + k]) for start in range(0, len(replies), k)]


class PipelinedSetbit(_Bitmap):
    """All bits in one pipeline: fast, but not atomic, so two workers may both get "new"."""

    name = "pipelined SETBIT"

    def add_many(self, items: Sequence[str]) -> list[bool]:
        pipe = self.client.pipeline(transaction=False)
        for item in items:
            for offset in self.offsets(item):
                pipe.setbit(self.key, offset, 1)
        return [not there for there in self._all_set(pipe.execute())]

    def contains_many(self, items: Sequence[str]) -> list[bool]:
        pipe = self.client.pipeline(transaction=False)
        for item in items:
            for offset in self.offsets(item):
                pipe.getbit(self.key, offset)
        return self._all_set(pipe.execute())


class SetbitByTrip(_Bitmap):
    """A round trip for each bit, as in simple examples."""

    name = "SETBIT, a trip each"

    def add_many(self, items: Sequence[str]) -> list[bool]:
        setbit, key = self.client.setbit, self.key
        return [0 in [setbit(key, offset, 1) for offset in self.offsets(item)] for item in items]

    def contains_many(self, items: Sequence[str]) -> list[bool]:
        getbit, key = self.client.getbit, self.key
        return [all(getbit(key, offset) for offset in self.offsets(item)) for item in items]


class DecimalScript(_Bitmap):
    """A script that takes the offsets as decimal arguments; a batch is a pipeline of its calls."""

    name = "EVALSHA, decimal offsets"

    def __init__(
        self, bench: Bench, *, capacity: int = CAPACITY, error_rate: float = RATE, suffix: str = ""
    ) -> None:
        super().__init__(bench, capacity=capacity, error_rate=error_rate, suffix=suffix)
        here = Path(__file__).parent
        self.add, self.contains = (
            bench.client.script_load((here / f"decimal_{verb}.lua").read_text())
            for verb in ("add", "contains")
        )

    def add_each(self, items: Sequence[str]) -> list[Any]:
        return [self.client.evalsha(self.add, 1, self.key, *self.offsets(item)) for item in items]

    def contains_each(self, items: Sequence[str]) -> list[Any]:
        return [self.client.evalsha(self.contains, 1, self.key, *self.offsets(item)) for item in items]

    def add_many(self, items: Sequence[str]) -> list[Any]:
        return self._pipelined(self.add, items)

    def contains_many(self, items: Sequence[str]) -> list[Any]:
        return self._pipelined(self.contains, items)

    def _pipelined(self, sha: str, items: Sequence[str]) -> list[Any]:
        pipe = self.client.pipeline(transaction=False)
        for item in items:
            pipe.evalsha(sha, 1, self.key, *self.offsets(item))
        return pipe.execute()
