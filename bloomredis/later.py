"""Modules that come with the verb that needs them: most programs never save, load or merge a filter."""

from __future__ import annotations

from importlib import import_module
from types import ModuleType
from typing import Any


class _Later(ModuleType):
    """A module that is imported when one of its names is first used."""

    def __getattr__(self, name: str) -> Any:
        return getattr(import_module(self.__name__), name)


def later(folder: str, *names: str) -> Any:
    """Return modules of a folder that are imported at their first use; a single one, or a list.

    Type checkers need an `if TYPE_CHECKING` with the same modules.
    """
    modules = [_Later(f"{folder}.{name}") for name in names]
    return modules if len(names) > 1 else modules[0]
