"""Entry points of the drivers into a filter's operations, in whichever module they are."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable
from typing import Any

from bloomredis import errors
from bloomredis.errors import OutcomeUnknownError
from bloomredis.operations.kinds import filter as plain


def _found(module: str, name: str) -> Any:
    """Return a module's attribute, or None without such a module or name."""
    spec = importlib.util.find_spec(module)
    return spec and getattr(importlib.import_module(module), name, None)


PlainOperations: Callable[..., Any] = (
    _found("bloomredis.operations.kinds.plain", "PlainOperations") or plain.FilterOperations
)
NOTHING_IN_DOUBT: type[Exception] = getattr(errors, "ConnectionFailedError", OutcomeUnknownError)
"""The error of a call that can simply be repeated."""


def in_local_cache(operations: Any, item: str) -> bool:
    """Return whether a call is answered without the server."""
    known: Callable[[str], bool] = getattr(operations, "in_local_cache", None) or operations.known
    return known(item)
