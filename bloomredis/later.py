"""Modules that come with the verb that needs them: most programs never save, load or merge a filter."""

from __future__ import annotations

import os
from importlib import import_module
from threading import RLock
from types import ModuleType
from typing import Any, Final

unforked: Final = RLock()
"""The lock of imports in the middle of a program: no child is forked while a thread holds it.

A child that is forked while another thread imports a module would wait for that import for ever.
"""
if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=unforked.acquire, after_in_parent=unforked.release, after_in_child=unforked.release
    )


class _Later(ModuleType):
    """A module that is imported when one of its names is first used."""

    def __getattr__(self, name: str) -> Any:
        return getattr(imported(self.__name__), name)


def imported(module: str) -> ModuleType:
    """Import a module in the middle of a program."""
    with unforked:
        return import_module(module)


def later(folder: str, *names: str) -> Any:
    """Return modules of a folder that are imported at their first use; a single one, or a list.

    Type checkers need an `if TYPE_CHECKING` with the same modules.
    """
    modules = [_Later(f"{folder}.{name}") for name in names]
    return modules if len(names) > 1 else modules[0]
