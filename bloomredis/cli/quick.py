"""Usual command lines, read without typer's parser, whose import takes longer than most commands.

A line that this module does not understand is left to typer: help, completion, and every mistake.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from functools import partial
from inspect import signature
from typing import Any, NamedTuple, get_args, get_origin, get_type_hints

import typer
from typer.models import OptionInfo


def call(function: Callable[..., object], words: Sequence[str]) -> Callable[[], object] | None:
    """Return the call of a command's function that its words mean; None if typer must read them."""
    options, arguments, given = declared(function)
    rest, queue = [], list(reversed(words))
    try:
        while queue:
            word = queue.pop()
            if word == "-" or not word.startswith("-"):
                rest.append(word)
                continue
            switch, equals, text = word.partition("=") if word.startswith("--") else (word, "", "")
            one = options[switch]
            if isinstance(one.info, bool):
                given[one.name] = {"": one.info}[equals]
            else:
                one.take(given, text if equals else queue.pop())
        for one in arguments:
            own, rest = (rest, []) if one.is_list else (rest[:1], rest[1:])
            for word in own:
                one.take(given, word)
        signature(function).bind(**given)
    except (KeyError, IndexError, TypeError, typer.BadParameter):
        return None
    return None if rest else partial(function, **given)


class _Declared(NamedTuple):
    """An option or argument; a switch has the value that it gives instead of typer's description."""

    name: str
    is_list: bool
    info: Any

    def take(self, given: dict[str, Any], text: str) -> None:
        """Read a text; raise `BadParameter` for a wrong one."""
        read = self.info.parser(text) if self.info.parser else text
        given[self.name] = [*given.get(self.name, ()), read] if self.is_list else read


def declared(
    function: Callable[..., object],
) -> tuple[dict[str, _Declared], list[_Declared], dict[str, Any]]:
    """Return the options by their switches, the arguments, and the values of the environment."""
    options, arguments, given = dict[str, _Declared](), list[_Declared](), dict[str, Any]()
    hints = get_type_hints(function, include_extras=True)
    for name in signature(function).parameters:
        kind, info = get_args(hints[name])
        kinds = [kind, *get_args(kind)]
        one = _Declared(name, any(get_origin(each) is list for each in kinds), info)
        if not isinstance(info, OptionInfo):
            arguments.append(one)
            continue
        if found := os.environ.get(str(info.envvar)):
            given[name] = found
        # Within Annotated, typer takes the first name for a default.
        names = [text for text in (info.default, *(info.param_decls or ())) if isinstance(text, str)]
        for declared in names or [f"--{name.replace('_', '-')}"]:
            for switch, value in zip(declared.split("/"), (True, False), strict=False):
                options[switch] = one._replace(info=value) if bool in kinds else one
    return options, arguments, given
