"""Layouts by their names on the command line: `blocked`, or `go_zero:20000` for another system's layout."""

from __future__ import annotations

import inspect
from typing import Annotated, Any, Final

import typer

from bloomredis.bits.module_items import ModuleItems
from bloomredis.stored import planning

FOREIGN: Final = ("go_zero", "guava", "jedis", "php_bkdr", "redis_bitmaps", "redis_template", "redisson")
OWN: Final = (*planning.NAMES, ModuleItems.name)
HELP: Final = f"{', '.join(OWN)}, or another system's, such as go_zero:20000."
Layout = Annotated[str | None, typer.Option(metavar="LAYOUT", help=HELP, show_default=False)]


def layout(text: str | None) -> Any:
    """Return the layout that a command line names, None for None."""
    if text is None or text in OWN:
        return text
    name, colon, values = text.partition(":")
    if name not in FOREIGN:
        names = ", ".join((*OWN, *(f"{one}:..." for one in FOREIGN)))
        raise ValueError(f"--layout must be one of {names}, not {text!r}")
    from bloomredis import compat

    make = getattr(compat, name)
    given = [_value(value) for value in values.split(",")] if colon else []
    try:
        inspect.signature(make).bind(*given)
    except TypeError:
        raise ValueError(f"write --layout {name} as {_usage(name, make)}, not {text}") from None
    try:
        return make(*given)
    except (TypeError, ValueError) as error:
        raise ValueError(f"--layout {text}: {error}") from None


def _value(text: str) -> int | float | str:
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def _usage(name: str, make: Any) -> str:
    parameters = inspect.signature(make).parameters.values()
    needed = [one.name.upper() for one in parameters if one.default is inspect.Parameter.empty]
    return f"{name}:{','.join(needed)}"
