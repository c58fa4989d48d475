"""Filters of every kind to be saved, and processes that end during a restore."""

from __future__ import annotations

import io
from typing import Any, Final

import bloomredis

ITEMS: Final = range(600)
ABSENT: Final = range(10_000, 10_800)

KINDS: Final[dict[str, tuple[str, dict[str, Any]]]] = {
    "blocked": ("BloomFilter", {"capacity": 20_000, "error_rate": 0.01}),
    "classic": ("BloomFilter", {"capacity": 800, "error_rate": 0.01, "layout": "classic", "ttl": 500}),
    "counting": ("CountingBloomFilter", {"capacity": 800, "error_rate": 0.01}),
    "scaling": ("ScalingBloomFilter", {"capacity": 200, "error_rate": 0.01, "ttl": 500}),
    "rotating": ("RotatingBloomFilter", {"capacity": 800, "error_rate": 0.01, "window": 500}),
    "sharded": ("ShardedBloomFilter", {"capacity": 2_000, "error_rate": 0.01, "shards": 4, "ttl": 500}),
}
"""Classes and parameters, by a name for test ids."""


def made(client: Any, kind: str = "blocked", name: str = "seen") -> Any:
    """Return a filter of that kind with the items."""
    of, parameters = KINDS[kind]
    f = getattr(bloomredis, of)(client, name, **parameters)
    f.add_many(ITEMS)
    return f


def saved(f: Any) -> bytes:
    """Return the file of a filter."""
    file = io.BytesIO()
    f.save(file)
    return file.getvalue()


def comparable(info: Any) -> dict[str, Any]:
    """Return what a copy and its filter share, with the time to live rounded."""
    fields = {each: getattr(info, each) for each in info.__slots__}
    for each in ("name", "generation", "created_at"):
        del fields[each]
    fields["ttl"] = fields["ttl"] and round(fields["ttl"] / 60)
    fields["layers"] = [comparable(layer) for layer in info.layers]
    return fields


class Killed(BaseException):
    """The process has ended: nothing that it would have done afterwards happens."""


class Mortal:
    """A client whose process ends after that many commands, also within one round trip."""

    def __init__(self, client: Any, commands: int) -> None:
        self._client = client
        self.left = commands
        self.sent: list[tuple[Any, ...]] = []

    def execute_command(self, *command: Any, **options: Any) -> Any:
        if self.left <= 0:
            raise Killed
        self.left -= 1
        self.sent.append(command)
        return self._client.execute_command(*command, **options)

    def pipeline(self, *, transaction: bool) -> Any:
        return _MortalPipeline(self)


class _MortalPipeline:
    def __init__(self, client: Mortal) -> None:
        self._client = client
        self._commands: list[tuple[Any, Any]] = []

    def execute_command(self, *command: Any, **options: Any) -> None:
        self._commands.append((command, options))

    def execute(self, *, raise_on_error: bool) -> list[Any]:
        replies: list[Any] = []
        for command, options in self._commands:
            try:
                replies.append(self._client.execute_command(*command, **options))
            except Exception as error:
                replies.append(error)
        return replies
