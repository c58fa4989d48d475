"""The commands by name; each is imported when it is asked for, so that a run imports only its own."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator, Mapping
from importlib import import_module
from itertools import groupby
from typing import Any, Final, NamedTuple

import typer
from typer.core import TyperCommand, TyperGroup

MARKUP: Final = None
"""Plain text, half as long as in boxes."""


class Command(NamedTuple):
    """Where a command is in the help, and how it may be called.

    :ivar module: the module of its function.
    """

    group: str
    module: str
    example: str


_FIRST, _ITEMS, _LOOK, _WHOLE = "Begin", "Items of a filter", "Look", "Whole filters"
COMMANDS: Final = {
    "dedupe": Command(_FIRST, "dedupe", "dedupe lines.txt"),
    "create": Command(_FIRST, "manage", "create seen-urls --capacity 1M --error-rate 0.001"),
    "plan": Command(_FIRST, "plan", "plan 1M --error-rate 0.001"),
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
    "acknowledge": Command(_WHOLE, "manage", "acknowledge seen-urls"),
    "save": Command(_WHOLE, "portable", "save seen-urls urls.bloom"),
    "restore": Command(_WHOLE, "portable", "restore urls-before urls.bloom"),
    "copy": Command(_WHOLE, "portable", "copy seen-urls urls-copy"),
    "merge": Command(_WHOLE, "portable", "merge seen-urls urls-copy"),
    "adopt": Command(_WHOLE, "adopt", "adopt seen-urls"),
    "delete": Command(_WHOLE, "manage", "delete urls-copy"),
}
"""The commands, in the order of the help."""
_HEADINGS: Final = {
    "field": "What is compared",
    "repeated": "What is printed",
    "capacity": "The filter",
    "url": "A filter on a server, for several runs",
}
"""The headings in the help of `dedupe`, each before an option."""
_WIDEST: Final = max(map(len, COMMANDS))
_FUNCTIONS: Final = {"import": "import_", "list": "list_"}
"""Functions whose name is not that of the command."""


def function_of(name: str) -> Callable[..., object]:
    """Return the function of a command, whose signature declares the options."""
    module = import_module(f"bloomredis.cli.{COMMANDS[name].module}")
    function: Callable[..., object] = getattr(module, _FUNCTIONS.get(name, name))
    return function


class Commands(Mapping[str, Any]):
    """The commands as typer wants them, which asks for those that it runs or shows."""

    def __init__(self) -> None:
        self._made: dict[str, Any] = {}

    def __getitem__(self, name: str) -> Any:
        if name not in self._made:
            command, function = COMMANDS[name], function_of(name)
            first, *rest = inspect.cleandoc(function.__doc__ or "").split("\n\n")
            one = typer.Typer(add_completion=False, rich_markup_mode=MARKUP)
            told = "\n\n".join([first, f"Example: bloomredis {command.example}", *rest])
            one.command(name, cls=PlainCommand, help=told, short_help=first)(function)
            self._made[name] = typer.main.get_command(one)
        return self._made[name]

    def __iter__(self) -> Iterator[str]:
        return iter(COMMANDS)

    def __len__(self) -> int:
        return len(COMMANDS)


class PlainCommand(TyperCommand):
    """A command whose help shows an argument by its name alone, without its type."""

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        """Return the words of the usage line."""
        return [piece.strip("{}") for piece in super().collect_usage_pieces(ctx)]

    def get_help(self, ctx: Any) -> str:
        """Return the text of `--help`."""
        return re.sub(r"^(  [A-Z]+) <.+?>", r"\1", super().get_help(ctx), flags=re.MULTILINE)

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write the options, those of `dedupe` in groups."""
        sections: dict[str, list[Any]] = {}
        heading = "Arguments"
        for one in self.get_params(ctx):
            if one.param_type_name == "option" and heading == "Arguments":
                heading = "Options"
            if self.name == "dedupe":
                heading = _HEADINGS.get(one.name or "", heading)
            sections.setdefault(heading, []).extend(filter(None, [one.get_help_record(ctx)]))
        for name, rows in sections.items():
            with formatter.section(name):
                formatter.write_dl(rows)


class Group(TyperGroup):
    """`bloomredis` without a command."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.commands = Commands()  # type: ignore[assignment]  # typer only reads it

    def format_commands(self, ctx: Any, formatter: Any) -> None:  # noqa: ARG002 - typer calls it so
        """Write the commands in groups, each with the first line of its help."""
        for group, names in groupby(COMMANDS, lambda name: COMMANDS[name].group):
            with formatter.section(group):
                formatter.write_dl([(name.ljust(_WIDEST), self.commands[name].short_help) for name in names])
