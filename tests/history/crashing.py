"""Processes that are killed during a call on a filter."""

from __future__ import annotations

import os
import signal
import struct
from collections.abc import Sequence
from typing import Any, Final, Literal, NamedTuple, NoReturn

import redis

import bloomredis
from tests.history.plans import Plan
from tests.history.watching import REPLACED, Watch, Watched
from tests.support.holes import open_holes

Work = Literal["clear", "add"]

GROWTH: Final = ("add", "add_layer", "acknowledge", "settle_record")
ITEMS: Final = 60
_SPAN: Final = struct.Struct("dd")


class Crash(NamedTuple):
    """A process to kill.

    :ivar after: kill after this many steps; a process that ends earlier is not killed.
    :ivar options: options of the filter besides those of the plan, with their values.
    """

    plan: Plan
    socket: str
    work: Work
    after: int
    number: int
    options: Sequence[tuple[str, Any]] = ()


def serve(pipe: Any, holes: Sequence[str]) -> None:
    """Run the processes that a pipe requests; send back when each replaced the filter."""
    open_holes(holes)
    for crash in iter(pipe.recv, None):
        reader, writer = os.pipe()
        pid = os.fork()
        if pid == 0:
            _die(crash, writer)
        os.close(writer)
        with os.fdopen(reader, "rb") as stream:
            spans = list(_SPAN.iter_unpack(stream.read()))
        os.waitpid(pid, 0)
        pipe.send(spans)


def _die(crash: Crash, writer: int) -> NoReturn:
    watch = Watch(
        crash.plan.seed.encode(),
        stop=lambda: os.kill(os.getpid(), signal.SIGKILL),
        at=(REPLACED, "describe", "delete") if crash.work == "clear" else GROWTH,
        after=crash.after,
        told=lambda start, end: os.write(writer, _SPAN.pack(start, end)),
    )
    try:
        client = redis.Redis(unix_socket_path=crash.socket)
        kind: Any = getattr(bloomredis, crash.plan.made.called)
        options = {**crash.plan.options, **dict(crash.options), "on_lost": "recreate"}
        f = kind(Watched(client, watch), crash.plan.seed, **options)
        if crash.work == "clear":
            f.clear()
        for number in range(ITEMS):
            f.add(f"crash {crash.number}/{number}")
    finally:
        os._exit(0)
