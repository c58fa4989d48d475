"""Items of adapters: the name of the work, and a key or the arguments of a call.

A record may have no key: it is handed on unchecked, dropped, or refused.
"""

from __future__ import annotations

import inspect
import json
import typing
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Literal, get_args

from bloomredis import WorkItem

Missing = Literal["keep", "drop", "raise"]
"""Treatment of a record without a key."""


def item_of(name: str, key: Any, *, bare: bool) -> Any:
    """Return the item of a key: the key itself if `bare`, else one that no work of another name has."""
    return key if bare else WorkItem(name, key)


def call_item(
    name: str,
    function: Callable[..., Any],
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    *,
    only: Sequence[str] | None = None,
    bare: bool = False,
    advice: str,
    dumps: Callable[..., str] = json.dumps,
) -> str:
    """Return the item of a call: a JSON text of the name, unless `bare`, and the arguments by their names.

    An argument that is left out has its default.  A model of pydantic, and a value that is to become one, has
    the fields of the validated model.

    :param only: the names of the arguments that make up the item; None for all.
    :param advice: the way out if JSON cannot hold an argument.
    :param dumps: writes the JSON text, as the framework does.
    :raises TypeError: the arguments do not fit, or JSON cannot hold one of them.
    """
    bound = inspect.signature(function).bind(*args, **kwargs)
    bound.apply_defaults()
    hints: dict[str, Any] = {}
    with suppress(NameError, AttributeError, TypeError):  # an annotation that cannot be resolved
        hints = typing.get_type_hints(function)
    values = {
        each: _fields(value, hints.get(each))
        for each, value in bound.arguments.items()
        if only is None or each in only
    }
    try:
        return dumps(values if bare else [name, values], sort_keys=True)
    except TypeError as error:
        raise TypeError(f"an argument of {name} cannot be part of its item: {error}. {advice}") from error


def _fields(value: Any, hint: Any) -> Any:
    """Return the fields of a model of pydantic, or of a value that is annotated as one; else the value."""
    for kind in (hint, *get_args(hint)):  # as in `Order | None`
        if isinstance(kind, type) and hasattr(kind, "model_validate") and value is not None:
            with suppress(ValueError):  # the body gets the error
                value = kind.model_validate(value)
    return value.model_dump(mode="json") if hasattr(type(value), "model_dump") else value


def require_result(name: str, result: Any) -> Any:
    """Return the result of a body.

    :raises TypeError: it stands for work that is yet to be done: an awaitable or a generator.  A coroutine is
        closed.
    """
    if not (inspect.isawaitable(result) or inspect.isgenerator(result) or inspect.isasyncgen(result)):
        return result
    if inspect.iscoroutine(result):
        result.close()
    raise TypeError(
        f"{name} returned {type(result).__name__}, whose work is not done yet; its item is given back. Let "
        "the body do the work before it returns, as asyncio.run() does for a coroutine function"
    )


def checked(missing: Missing) -> Missing:
    """Return a treatment.  Raises `ValueError` if there is no such treatment."""
    if missing not in get_args(Missing):
        raise ValueError(f'missing must be "keep", "drop" or "raise", not {missing!r}')
    return missing


def is_kept(missing: Missing, record: str) -> bool:
    """Return whether a record without a key is handed on unchecked.

    :param record: the record's place, for the error.
    :raises TypeError: records without a key are refused.
    """
    if missing == "raise":
        raise TypeError(f'{record} has no key: missing="keep" hands it on unchecked, "drop" leaves it out')
    return missing == "keep"
