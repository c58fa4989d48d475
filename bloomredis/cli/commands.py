"""The commands by name; each is imported when it is asked for, so that a run imports only its own."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import Any, Final

import typer
from typer.core import TyperGroup

MARKUP: Final = "markdown"
"""It joins the lines of a paragraph, and keeps [brackets]."""

_MODULES: Final = {
    "dedupe": "dedupe",
    "create": "manage",
    **dict.fromkeys(["add", "check", "remove"], "items"),
    "info": "info",
    **dict.fromkeys(["clear", "reserve", "expire", "delete"], "manage"),
    **dict.fromkeys(["save", "restore", "copy", "merge"], "portable"),
    "adopt": "adopt",
    "plan": "plan",
    "doctor": "doctor.command",
    "watch": "watch",
    "export": "export",
    "demo": "demo.command",
    "import": "importing",
    "list": "listing",
}
"""The module of each command, in the order of the help."""
_FUNCTIONS: Final = {"import": "import_", "list": "list_"}
"""Functions whose name is not that of the command."""


class Commands(Mapping[str, Any]):
    """The commands as typer wants them, which asks for those that it runs or shows."""

    def __init__(self) -> None:
        self._made: dict[str, Any] = {}

    def __getitem__(self, name: str) -> Any:
        if name not in self._made:
            module = import_module(f"bloomredis.cli.{_MODULES[name]}")
            one = typer.Typer(add_completion=False, rich_markup_mode=MARKUP)
            one.command(name)(getattr(module, _FUNCTIONS.get(name, name)))
            self._made[name] = typer.main.get_command(one)
        return self._made[name]

    def __iter__(self) -> Iterator[str]:
        return iter(_MODULES)

    def __len__(self) -> int:
        return len(_MODULES)


class Group(TyperGroup):
    """`bloomredis` without a command."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.commands = Commands()  # type: ignore[assignment]  # typer only reads it
