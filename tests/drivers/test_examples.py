"""The examples in docstrings run, in both halves."""

from __future__ import annotations

import ast
import asyncio
import inspect
import re
import textwrap
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import redis.asyncio

import bloomredis
import bloomredis.asyncio
from tests.support.servers import Server
from tests.support.values import for_each

_BLOCK = re.compile(r"::\n\n((?: {4}.*\n|\n)+)")

VERBS = ("claim", "once")
"""The methods whose docstrings have an example."""


def examples(cls: type) -> Iterator[tuple[str, str]]:
    """Yield the names of a class's methods and the examples in their docstrings."""
    for name, method in inspect.getmembers(cls, callable):
        if not name.startswith("_"):
            for found in _BLOCK.finditer((inspect.getdoc(method) or "") + "\n"):
                yield name, textwrap.dedent(found[1])


@for_each("cls", [bloomredis.BloomFilter, bloomredis.asyncio.BloomFilter])
def test_these_methods_have_an_example(cls: type) -> None:
    """So no example is passed over."""
    assert tuple(name for name, _ in examples(cls)) == VERBS


async def run(example: str, names: dict[str, Any]) -> None:
    """Execute an example, which may await."""
    code = compile(example, "example", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    if inspect.iscoroutine(running := eval(code, names)):  # noqa: S307 - text of the package
        await running


@pytest.mark.parametrize("verb", VERBS)
def test_an_example_of_the_synchronous_half(server: Server, verb: str) -> None:
    """It handles the item once."""
    done: list[Any] = []
    seen: Any = bloomredis.BloomFilter(server.client(), "seen", capacity=100, error_rate=1e-6)
    names = {"seen": seen, "url": "a", "fetch": done.append}
    asyncio.run(run(dict(examples(bloomredis.BloomFilter))[verb], names))
    if verb == "once":
        order = SimpleNamespace(id="a")
        assert names["ship"](order) is None
        assert names["ship"].item(order) in seen
    else:
        assert (done, "a" in seen) == (["a"], True)


@pytest.mark.parametrize("verb", VERBS)
def test_an_example_of_the_asyncio_half(server: Server, verb: str) -> None:
    """It handles the item once."""
    done: list[Any] = []

    async def fetch(url: str) -> None:
        done.append(url)

    async def main() -> bool:
        async with redis.asyncio.Redis(unix_socket_path=server.socket) as client:
            seen: Any = bloomredis.asyncio.BloomFilter(client, "seen", capacity=100, error_rate=1e-6)
            names = {"seen": seen, "url": "a", "fetch": fetch}
            await run(dict(examples(bloomredis.asyncio.BloomFilter))[verb], names)
            item: Any = "a"
            if verb == "once":
                order = SimpleNamespace(id="a")
                assert await names["ship"](order) is None
                item, done[:] = names["ship"].item(order), "a"
            is_there: bool = await seen.contains(item)
            return is_there

    assert (asyncio.run(main()), done) == (True, ["a"])
