"""The commands of each script's usual call, which MONITOR shows, and scripts as they are assembled.

`python -m tests.support.usual add one,blocks` prints a script; without a verb, the command renews the
lines `-- Commands:` at the head of each verb.
"""

from __future__ import annotations

import ast
import io
import re
import socket
import sys
import textwrap
from collections.abc import Callable, Iterable, Iterator
from itertools import groupby
from pathlib import Path
from typing import Any, Final

import redis

from bloomredis import (
    BloomFilter,
    CountingBloomFilter,
    OutcomeUnknownError,
    ScalingBloomFilter,
    ShardedBloomFilter,
    compat,
)
from bloomredis.protocol import scripts
from tests.support.modules import MODULE
from tests.support.servers import IN_MEMORY, Server, binaries, module_options, running

ROOT: Final = Path(__file__).parents[2]

Called = dict[tuple[str, scripts.Variant], list[tuple[str, int]]]
"""For each script its commands, each with the number of its key in KEYS, or 0."""

_SMALL: Final[dict[str, Any]] = {"capacity": 1000, "error_rate": 0.01}
_SHARDED: Final[dict[str, Any]] = {"capacity": 10_000, "error_rate": 0.01, "shards": 2}
_FEW: Final[dict[str, Any]] = {"capacity": 500, "error_rate": 0.01}
_WARM: Final = range(1000, 1040)
_LOADED: Final = range(700)  # enough to send segments

FILTERS: Final[dict[str, Callable[[redis.Redis, str], Any]]] = {
    "blocks": lambda c, name: BloomFilter(c, name, **_SMALL),
    "bits": lambda c, name: BloomFilter(c, name, **_SMALL, layout="classic"),
    "shards": lambda c, name: ShardedBloomFilter(c, name, **_SHARDED),
    "shards of bits": lambda c, name: ShardedBloomFilter(c, name, **_SHARDED, layout="classic"),
    "counters": lambda c, name: CountingBloomFilter(c, name, **_SMALL),
    "layers": lambda c, name: ScalingBloomFilter(c, name, **_FEW),
    "layers of bits": lambda c, name: ScalingBloomFilter(c, name, **_SMALL, layout="classic"),
    "bitmap": lambda c, name: BloomFilter(c, name, layout=compat.redisson(1000, 0.01)),
    "bitmaps": lambda c, name: BloomFilter(c, name, layout=compat.redis_bitmaps(1000, 0.01)),
    "module": lambda c, name: BloomFilter(c, name, **MODULE),
    "module, full": lambda c, name: BloomFilter(c, name, **MODULE, on_full="raise"),
}
"""A filter of each store and layout; those of one string have capped variants, and shards the others."""


def _use(client: redis.Redis, name: str, f: Any) -> None:
    """Make the usual calls: an add gets a new item, and a test a present one."""
    assert f.add("a")
    if hasattr(f, "queue_contains"):  # `contains` reads the blocks of a lone item without a script
        with client.pipeline(transaction=False) as pipe:
            f.queue_contains(pipe, "a")
            assert pipe.execute() == [1]
    assert f.contains("a")
    f.claim("b", lease=60).extend(120)
    f.claim("c").commit()
    f.claim("d").release()
    assert all(f.contains_many(_WARM[:14]))  # enough to read blocks
    if isinstance(f, CountingBloomFilter):
        assert f.remove("a")
    f.update(_LOADED)
    f.info()
    f.expire(3600)
    f.acknowledge()
    if not name.startswith(("bitmap", "module")):
        _move(client, f, name if name.startswith("shards") else f"{{{name}}}:")
    f.clear()
    f.delete()
    f.create()


def _move(client: redis.Redis, f: Any, prefix: str) -> None:
    """Save a filter, restore it, and merge the first into the second."""
    file = io.BytesIO()
    f.save(file)
    file.seek(0)
    restored = type(f).restore(client, f"{prefix}restored", file)
    if type(f) in {BloomFilter, ShardedBloomFilter}:
        restored.merge(f)
    if type(f) is BloomFilter:
        ScalingBloomFilter.adopt(client, restored.name)


def _use_others(client: redis.Redis, *, has_module: bool) -> None:
    """Make the calls of scripts that only some ways of use need."""
    waiting = BloomFilter(client, "waiting", **_SMALL, min_replicas=1, replica_timeout=0.001)
    try:
        waiting.create()
    except OutcomeUnknownError:
        assert client.exists("waiting")
    if has_module:
        command: Any = client.execute_command
        command("BF.RESERVE", "of another program", 0.01, 1000)
        BloomFilter.open(client, "of another program")


_SHOWN: Final = re.compile(rb"\+[\d.]+ \[\d+ (\S+)\] (.*)\r\n", re.DOTALL)
_WORD: Final = re.compile(rb'"(?:[^"\\]|\\.)*"')


def _shown(lines: Iterable[bytes]) -> Iterator[tuple[bool, list[bytes]]]:
    """Yield the commands that MONITOR shows, and whether a script called each."""
    for line in lines:
        if found := _SHOWN.fullmatch(line):
            words = [ast.literal_eval(f"b{word.decode()}") for word in _WORD.findall(found[2])]
            yield found[1] == b"lua", words


def monitored(server: Server, use: Callable[[], None]) -> Called:
    """Return the commands of the first call of each script."""
    every = [*scripts.every_script()]
    known = {name.encode(): (each.verb, each.variant) for each in every for name in (each.sha, each.text)}
    found: Called = {}
    with socket.socket(socket.AF_UNIX) as watching, server.client() as client:
        watching.connect(server.socket)
        watching.sendall(b"MONITOR\r\n")
        with watching.makefile("rb") as stream:
            assert stream.readline() == b"+OK\r\n"
            use()
            client.echo("the end")
            commands, keys = list[tuple[str, int]](), list[bytes]()
            for is_called, (name, *words) in _shown(stream):
                if name == b"ECHO":
                    return {script: calls for script, calls in found.items() if calls}
                if is_called:
                    key = next((keys.index(word) + 1 for word in words if word in keys), 0)
                    commands.append((name.decode().upper(), key))
                elif name.startswith(b"EVAL"):
                    script, commands, keys = known[words[0]], [], words[2 : 2 + int(words[1])]
                    if not found.get(script):  # the server may have asked for the text first
                        found[script] = commands
    raise AssertionError("MONITOR ended")


def usual_calls() -> Called:
    """Return the commands of the usual call of each script; without the module's, if no server has it."""
    binary = binaries()["valkey-9"]
    module = module_options(binary)
    with running(binary, *IN_MEMORY, *module) as server, server.client() as client:
        names = [name for name in FILTERS if module or "module" not in name]
        filters = {name: FILTERS[name](client, name) for name in names}
        for f in filters.values():
            f.add_many(_WARM)  # sessions have receipts, and shards have bits

        def use() -> None:
            for name, f in filters.items():
                _use(client, name, f)
            _use_others(client, has_module=bool(module))

        return monitored(server, use)


def listed(commands: Iterable[tuple[str, int]]) -> str:
    """Return commands as a list: `GET 2, 7 SETBIT 1` sets seven bits of the first key."""
    texts = list[str]()
    for name, run in groupby(commands, lambda each: each[0]):
        keys = [key for _, key in run]
        if len(keys) > 2 and keys == [*range(keys[0], keys[-1] + 1)]:
            texts.append(f"{name} {keys[0]} to {keys[-1]}")
        else:
            counts = [(key, len([*same])) for key, same in groupby(keys)]
            texts += [f"{count} {name} {key or ''}".removeprefix("1 ").rstrip() for key, count in counts]
    return ", ".join(texts)


def head_of(variant: scripts.Variant, commands: Iterable[tuple[str, int]]) -> str:
    """Return the lines about commands at the head of a verb."""
    label = f"-- Commands{' of ' + ','.join(variant) if variant else ''}: "
    words = listed(commands).replace(" ", "\xa0").replace(",\xa0", ", ")  # a line ends after a comma
    filled = textwrap.fill(words, 120, initial_indent=label, subsequent_indent="--".ljust(len(label)))
    return filled.replace("\xa0", " ")


def with_head(text: str, head: str) -> str:
    """Return the text of a verb with these lines about commands."""
    above, _, code = text.partition("\n\n")
    above = above.partition("\n--\n-- Commands")[0]
    return f"{above}\n--\n{head}\n\n{code}"


def renew() -> None:
    """Write the lines about commands into each verb."""
    called = usual_calls()
    for path in ROOT.glob("lua/*/*.lua"):
        variant = next(iter(scripts.variants(path.stem)))
        if (path.stem, variant) in called:
            path.write_text(with_head(path.read_text(), head_of(variant, called[path.stem, variant])))


def main() -> None:
    """Print a script as the arguments say, or renew the heads."""
    if not sys.argv[1:]:
        renew()
        return
    verb, variant = sys.argv[1], tuple(filter(None, "".join(sys.argv[2:]).split(",")))
    if verb not in scripts.verbs() or variant not in scripts.variants(verb):
        known = (f"VERB={each.verb} VARIANT={','.join(each.variant)}" for each in scripts.every_script())
        raise SystemExit("\n".join(["the scripts are:", *sorted(known)]))
    text, commands = scripts.assemble(verb, variant), usual_calls().get((verb, variant))
    sys.stdout.write(with_head(text, head_of(variant, commands)) if commands else text)


if __name__ == "__main__":
    main()
