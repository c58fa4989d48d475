"""The programs of docs/queues.md, run by the workers of their queues; they deliver orders into a list."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from bloomredis import BloomFilter
from tests.support.readme import ROOT, on_page
from tests.support.servers import Server

NOTES: Final = """
import os as _os, time as _time
import redis as _redis
_notes = _redis.Redis(unix_socket_path={notes!r})
def _delivered(order):
    _notes.rpush("begun", order + " " + str(_os.getpid()))
    while not _notes.exists("go"):
        yield 0.05
    yield 0.05
    _notes.rpush("ended", order)
"""
FOLLOWED: Final = """
def followed(*results):
    _notes.rpush("results", "", *map(repr, results))
    _notes.rpush("ended", "followed")
"""
SYNC: Final = """
def deliver(order):
    for seconds in _delivered(order):
        _time.sleep(seconds)
"""
ASYNC: Final = """
async def deliver(order):
    for seconds in _delivered(order):
        await asyncio.sleep(seconds)
"""
CHANGES: Final = {
    "lease=30": "lease=6",
    "retry_delay=10": "retry_delay=1",
    "interval=10": "interval=1",
    "defer=10": "defer=1",
    "sleep(10)": "sleep(1)",
    "job_timeout = 300": "job_timeout = 20",
    "idle_timeout=600_000": "idle_timeout=3000",
}
"""Shorter times for a test than those of the page."""


@dataclass(frozen=True)
class Recipe:
    """A queue of the page: the command of its worker, and the folder of its packages.

    `looks_with_new`: a dead worker's message is delivered again only after a new message.
    `compositions`: functions `compose` that send orders together, with something that follows them.
    """

    name: str
    worker: tuple[str, ...]
    python: str = ""
    looks_with_new: bool = False
    compositions: dict[str, str] = field(default_factory=dict)


RQ_INTERVALS: Final = ("--worker-ttl", "60", "--maintenance-interval", "30")
DEPENDENCY_OF_RQ: Final = """
def compose(*orders):
    jobs = [queue.enqueue(ship, order, retry=Retry(max=1000, interval=1)) for order in orders]
    queue.enqueue(followed, depends_on=jobs)
"""
RESULTS_OF_RQ: Final = """
def compose(*orders):
    jobs = [queue.enqueue(ship, order, retry=Retry(max=1000, interval=1)) for order in orders]
    while not all(job.is_finished for job in jobs):
        _time.sleep(0.05)
    followed(*[job.return_value() for job in jobs])
"""
CHORD_OF_HUEY: Final = """
import huey as _huey
following = huey.task()(followed)
def compose(*orders):
    huey.enqueue(_huey.chord([ship.s(order) for order in orders], following.s()))
"""
PIPELINE_OF_HUEY: Final = """
following = huey.task()(followed)
def compose(first, *orders):
    task = ship.s(first)
    for order in orders:
        task.then(ship, order)
    huey.enqueue(task.then(following))
"""
RESULTS_OF_ARQ: Final = """
async def compose(queue, *orders):
    jobs = [await queue.enqueue_job("ship", order) for order in orders]
    followed(*[await job.result(timeout=60, poll_delay=0.05) for job in jobs])
"""
RESULTS_OF_TASKIQ: Final = """
from taskiq_redis import RedisAsyncResultBackend
broker.with_result_backend(RedisAsyncResultBackend("redis://localhost"))
async def compose(*orders):
    tasks = [await ship.kiq(order) for order in orders]
    followed(*[await task.wait_result(timeout=60) for task in tasks])
"""

RECIPES: Final = {
    each.name: each
    for each in (
        Recipe(
            "RQ",
            ("-m", "rq.cli", "worker", "--with-scheduler", *RQ_INTERVALS, "-q", "--url"),
            compositions={"dependency": DEPENDENCY_OF_RQ, "list of results": RESULTS_OF_RQ},
        ),
        Recipe(
            "Huey",
            ("-m", "huey.bin.huey_consumer", "shop.huey", "-w", "2", "-q"),
            compositions={"chord": CHORD_OF_HUEY, "pipeline": PIPELINE_OF_HUEY},
        ),
        Recipe(
            "arq",
            ("-m", "arq", "shop.WorkerSettings"),
            str(Path(sys.prefix) / "arq"),
            compositions={"list of results": RESULTS_OF_ARQ},
        ),
        Recipe(
            "taskiq",
            ("-m", "taskiq", "worker", "shop:broker", "--workers", "1", "--log-level", "ERROR"),
            looks_with_new=True,
            compositions={"list of results": RESULTS_OF_TASKIQ},
        ),
    )
}


class Shop:
    """The program of a recipe in a folder of its own, with its servers.

    A delivery that has begun ends once the key "go" exists.

    :param more: text at the end of the program.
    """

    def __init__(self, recipe: Recipe, folder: Path, queue: Server, seen: Server, more: str = "") -> None:
        self.recipe = recipe
        self._folder = folder
        self._queue = queue
        self.notes = queue.client(decode_responses=True)
        text = (_text(recipe.name) + more).replace(
            'BloomFilter.from_url("redis://localhost"', f'BloomFilter.from_url("{seen.url}"'
        )
        text = text.replace("redis://localhost", queue.url)
        for old, new in CHANGES.items():
            text = text.replace(old, new)
        work = ASYNC if "await deliver" in text else SYNC
        before = f"import asyncio\n{NOTES.format(notes=queue.socket)}{FOLLOWED}{work}"
        (folder / "shop.py").write_text(f"{before}\n{text}\n")
        self._seen = seen
        if "capacity" not in text:
            self.create()

    def create(self) -> None:
        """Create the filter, for a program that only opens it."""
        with self._seen.client() as client:
            BloomFilter(client, "shipped", capacity=1_000_000, error_rate=1e-6).create()

    def _environment(self) -> dict[str, str]:
        path = os.pathsep.join(filter(None, (self.recipe.python, str(self._folder), str(ROOT))))
        return os.environ | {"PYTHONPATH": path}

    def send(self, orders: list[str]) -> None:
        """Send each order, in another process, as a web application would."""
        self._call("for order in sys.argv[1:]: await call(shop.send, order)", orders)

    def compose(self, orders: list[str]) -> None:
        """Send orders together, in another process, which may wait for their results."""
        self._call("await call(shop.compose, *sys.argv[1:])", orders)

    def _call(self, statement: str, orders: list[str]) -> None:
        program = (
            "import asyncio, sys, shop\n"
            "async def main():\n"
            "    queue = None\n"
            "    if hasattr(shop, 'WorkerSettings'):\n"
            "        from arq import create_pool\n"
            "        queue = await create_pool(shop.WorkerSettings.redis_settings)\n"
            "    if hasattr(shop, 'broker'): await shop.broker.startup()\n"
            "    async def call(function, *orders):\n"
            "        made = function(*([queue] if queue else []), *orders)\n"
            "        if made is not None: await made\n"
            f"    {statement}\n"
            "    if hasattr(shop, 'broker'): await shop.broker.shutdown()\n"
            "asyncio.run(main())\n"
        )
        subprocess.run(
            [sys.executable, "-c", program, *orders],
            cwd=self._folder,
            env=self._environment(),
            check=True,
            timeout=60,
        )

    @contextmanager
    def worker(self) -> Iterator[subprocess.Popen[bytes]]:
        """Run a worker in a process group of its own; kill the group at the end."""
        command = [sys.executable, *self.recipe.worker]
        if self.recipe.name == "RQ":
            command.append(self._queue.url)
        with (self._folder / "log").open("ab") as log:
            process = subprocess.Popen(
                command,
                cwd=self._folder,
                env=self._environment(),
                start_new_session=True,
                stdout=log,
                stderr=log,
            )
        try:
            yield process
        finally:
            kill(process)

    def log(self) -> str:
        """Return what the workers have printed."""
        return (self._folder / "log").read_text()


def kill(process: subprocess.Popen[bytes]) -> None:
    """Kill a worker with all its processes."""
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _text(name: str) -> str:
    """Return the program of a recipe."""
    page = ROOT / "docs" / "queues.md"
    sections = page.read_text().split("\n## ")
    (section,) = [each for each in sections if each.startswith(f"{name}\n")]
    (block,) = [each for each in on_page(page) if each.language == "python" and each.text in section]
    return block.text
