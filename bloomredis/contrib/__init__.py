"""Adapters for frameworks: a module for each, with an extra of the same name.

The adapters are thin, and use only public names of `bloomredis` and `bloomredis.asyncio`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def needs(extra: str, framework: str) -> Iterator[None]:
    """Import a framework, or raise the error that says how to install it."""
    try:
        yield
    except ImportError as error:
        how = f"python3 -m pip install 'bloomredis[{extra}]'"
        raise ImportError(f"bloomredis.contrib.{extra} needs {framework}: {how}") from error
