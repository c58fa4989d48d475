"""Adapters for frameworks: a module for each, with an extra of the same name.

The adapters are thin, and use only public names of `bloomredis` and `bloomredis.asyncio`.
"""

from __future__ import annotations


def missing(extra: str, framework: str) -> ImportError:
    """Return the error for a framework that is not installed."""
    return ImportError(
        f"bloomredis.contrib.{extra} needs {framework}: python3 -m pip install 'bloomredis[{extra}]'"
    )
