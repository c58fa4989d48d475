"""Directories of embedded servers, and programs that use them."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.programs import Program
from tests.support.waiting import wait_until


@pytest.fixture
def kept(tmp_path: Path) -> Iterator[str]:
    """The URL of a directory that does not exist yet; no server remains in it after the test."""
    yield f"embedded://{tmp_path}/kept"
    link = tmp_path / "kept" / "server.socket"
    gc.collect()
    wait_until("no server is left", lambda: not link.is_symlink())


@pytest.fixture
def start(kept: str) -> Iterator[Callable[..., Program]]:
    """Start programs that end with the test, before `kept` checks its directory."""
    with contextlib.ExitStack() as stack:

        def begin(*arguments: str) -> Program:
            program = Program(*arguments)
            stack.callback(program.process.communicate)
            stack.callback(program.process.kill)
            return program

        yield begin
