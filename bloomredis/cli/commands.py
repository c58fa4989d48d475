"""The commands by name; each is imported when it is asked for, so that a run imports only its own."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import Any, Final, NamedTuple

import typer
from typer.core import TyperGroup

MARKUP: Final = "markdown"
"""It joins the lines of a paragraph, and keeps [brackets]."""


class Command(NamedTuple):
    """Where a command is in the help, and how it may be called.

    :ivar module: the module of its function.
    """

    group: str
    module: str
    example: str


_FIRST, _ITEMS, _LOOK, _WHOLE = "Begin", "Items of a filter", "Look", "Whole filters"
COMMANDS: Final = {
    "dedupe": Command(_FIRST, "dedupe", "dedupe lines.txt --name seen-lines"),
    "create": Command(_FIRST, "manage", "create seen-urls --capacity 1M --error-rate 0.001"),
    "plan": Command(_FIRST, "plan", "plan --capacity 1M --error-rate 0.001"),
    "demo": Command(_FIRST, "demo.command", "demo"),
    "add": Command(_ITEMS, "items", "add seen-urls https://example.org/ https://example.com/"),
    "check": Command(_ITEMS, "items", "check seen-urls https://example.org/"),
    "remove": Command(_ITEMS, "items", "remove in-stock 4711"),
    "import": Command(_ITEMS, "importing", "import seen-urls --from-file urls.txt"),
    "list": Command(_LOOK, "listing", "list"),
    "info": Command(_LOOK, "info", "info seen-urls"),
    "watch": Command(_LOOK, "watch", "watch seen-urls"),
    "doctor": Command(_LOOK, "doctor.command", "doctor"),
    "export": Command(_LOOK, "export", "export seen-urls"),
    "expire": Command(_WHOLE, "manage", "expire seen-urls 7d"),
    "clear": Command(_WHOLE, "manage", "clear seen-urls"),
    "reserve": Command(_WHOLE, "manage", "reserve seen-urls"),
    "save": Command(_WHOLE, "portable", "save seen-urls urls.bloom"),
    "restore": Command(_WHOLE, "portable", "restore urls-before urls.bloom"),
    "copy": Command(_WHOLE, "portable", "copy seen-urls urls-copy"),
    "merge": Command(_WHOLE, "portable", "merge seen-urls urls-copy"),
    "adopt": Command(_WHOLE, "adopt", "adopt seen-urls"),
    "delete": Command(_WHOLE, "manage", "delete urls-copy"),
}
"""The commands, in the order of the help."""
_FUNCTIONS: Final = {"import": "import_", "list": "list_"}
"""Functions whose name is not that of the command."""


class Commands(Mapping[str, Any]):
    """The commands as typer wants them, which asks for those that it runs or shows."""

    def __init__(self) -> None:
        self._made: dict[str, Any] = {}

    def __getitem__(self, name: str) -> Any:
        if name not in self._made:
            command = COMMANDS[name]
            module = import_module(f"bloomredis.cli.{command.module}")
            function = getattr(module, _FUNCTIONS.get(name, name))
            first, *rest = inspect.cleandoc(function.__doc__ or "").split("\n\n")
            one = typer.Typer(add_completion=False, rich_markup_mode=MARKUP)
            told = "\n\n".join([first, f"Example: `bloomredis {command.example}`", *rest])
            one.command(name, help=told, rich_help_panel=command.group)(function)
            self._made[name] = typer.main.get_command(one)
        return self._made[name]

    def __iter__(self) -> Iterator[str]:
        return iter(COMMANDS)

    def __len__(self) -> int:
        return len(COMMANDS)


class Group(TyperGroup):
    """`bloomredis` without a command."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.commands = Commands()  # type: ignore[assignment]  # typer only reads it
