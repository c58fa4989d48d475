"""The command `bloomredis`: in this process if only its output matters, else as a separate process.

A process takes 0.4 s of the processor before it does anything.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import sys
import traceback
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from functools import cache
from typing import IO, Any
from unittest import mock

import typer.main

from bloomredis.cli import main
from bloomredis.cli.stopping import SIGNALS

COMMAND = (sys.executable, "-m", "bloomredis.cli")
ENVIRONMENT = {name: value for name, value in os.environ.items() if name != "BLOOMREDIS_URL"} | {
    "LC_ALL": "C",
    "COLUMNS": "80",
}
Completed = subprocess.CompletedProcess[bytes]

_get_command = cache(typer.main.get_command)
"""Reads the signatures of all commands, once for a process."""


def run_command(*arguments: object, data: bytes = b"", **environment: str) -> Completed:
    """Run the command to its end in this process, with pipes for its streams like a separate process."""
    command = ["bloomredis", *map(str, arguments)]
    with (
        ThreadPoolExecutor(3) as pool,
        _streams(pool, data) as (streams, printed),
        mock.patch.multiple(sys, **streams, argv=command),
        mock.patch.object(typer.main, "get_command", _get_command),
        mock.patch.dict(os.environ, ENVIRONMENT | environment, clear=True),
        _handlers_restored(),
    ):
        status = _status()
    return Completed(command, status, *(each.result() for each in printed))


def run_process(*arguments: object, data: bytes = b"", **environment: str) -> Completed:
    """Run the command to its end in a separate process."""
    return subprocess.run(
        [*COMMAND, *map(str, arguments)],
        input=data,
        capture_output=True,
        env=ENVIRONMENT | environment,
        timeout=120,
        check=False,
    )


def printed(*arguments: object, data: bytes = b"", run: Callable[..., Completed] = run_command) -> bytes:
    """Return the output of a successful command without messages."""
    done = run(*arguments, data=data)
    assert (done.returncode, done.stderr) == (0, b"")
    return done.stdout


@contextlib.contextmanager
def started(*arguments: object) -> Iterator[subprocess.Popen[bytes]]:
    """Start the command with pipes for its three streams."""
    pipe = subprocess.PIPE
    with subprocess.Popen(
        [*COMMAND, *map(str, arguments)], bufsize=0, stdin=pipe, stdout=pipe, stderr=pipe, env=ENVIRONMENT
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def answer(process: subprocess.Popen[bytes], line: bytes) -> bytes:
    """Send a line and return the line in reply."""
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(line)
    assert select.select([process.stdout], [], [], 60)[0], "no answer in a minute"
    return os.read(process.stdout.fileno(), 1000)


def _status() -> int:
    """Run the command in `sys.argv`, and return its exit status."""
    try:
        main()
    except SystemExit as end:
        return int(end.code or 0)
    except BaseException:
        traceback.print_exc()
        return 1
    return 0


@contextlib.contextmanager
def _streams(pool: Executor, data: bytes) -> Iterator[tuple[dict[str, Any], list[Future[bytes]]]]:
    """Yield the three streams of a command, and the contents of the last two after it."""
    with contextlib.ExitStack() as stack:

        def pipe(text: str, binary: str) -> tuple[IO[str], IO[bytes]]:
            ends = dict(zip("rw", os.pipe(), strict=True))
            theirs = stack.enter_context(
                os.fdopen(ends[text], text, encoding="utf-8", errors="surrogateescape")
            )
            return theirs, os.fdopen(ends[binary], f"{binary}b")

        (stdin, given), (stdout, out), (stderr, err) = pipe("r", "w"), pipe("w", "r"), pipe("w", "r")
        pool.submit(_into, given, data)
        streams = {"stdin": stdin, "stdout": stdout, "stderr": stderr}
        yield streams, [pool.submit(_whole, out), pool.submit(_whole, err)]


def _into(pipe: IO[bytes], data: bytes) -> None:
    with contextlib.suppress(BrokenPipeError), pipe:  # a command may leave input unread
        pipe.write(data)


def _whole(pipe: IO[bytes]) -> bytes:
    with pipe:
        return pipe.read()


@contextlib.contextmanager
def _handlers_restored() -> Iterator[None]:
    """Restore the signal handlers when a command ends."""
    before = [(number, signal.getsignal(number)) for number in SIGNALS]
    try:
        yield
    finally:
        for number, handler in before:
            signal.signal(number, handler)
