"""Adapters for frameworks, a module for each, with an extra of the same name.

They are thin, and use only what is public in `bloomredis` and `bloomredis.asyncio`.
"""

from __future__ import annotations


def missing(extra: str, framework: str) -> ImportError:
    """Return the error of a module whose framework is not installed."""
    return ImportError(
        f"bloomredis.contrib.{extra} needs {framework}: python3 -m pip install 'bloomredis[{extra}]'"
    )
