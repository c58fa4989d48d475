"""How a public class gets its methods from operations without their being written again.

A driver's class says `add = run(FilterOperations.add)`: type checkers see the operation's
parameters and its answer, and so do `help()` and `inspect`.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any, Concatenate, ParamSpec, TypeVar

P = ParamSpec("P")
S = TypeVar("S")
C = TypeVar("C")
O = TypeVar("O")  # noqa: E741 - the operations


def presented_as(operation: Callable[..., Any], method: Callable[..., Any]) -> None:
    """Give `method` the name, docstring and parameters of `operation`, and its answer as return type."""
    functools.update_wrapper(method, operation)
    signature = inspect.signature(operation)
    answer = str(signature.return_annotation).removeprefix("Op[").removesuffix("]")
    method.__signature__ = signature.replace(return_annotation=answer)  # type: ignore[attr-defined]  # documented in inspect
    method.__annotations__ = {**operation.__annotations__, "return": answer}


def built_by(
    operations: Callable[P, O],
) -> Callable[[Callable[[S, C, O], None]], Callable[Concatenate[S, C, P], None]]:
    """Let `__init__(self, client, operations)` take a client and whatever makes the operations."""

    def decorate(init: Callable[[S, C, O], None]) -> Callable[Concatenate[S, C, P], None]:
        @functools.wraps(init)
        def wrapper(self: S, client: C, /, *args: P.args, **kwargs: P.kwargs) -> None:
            init(self, client, operations(*args, **kwargs))

        own = list(inspect.signature(init).parameters.values())[:2]
        taken = inspect.signature(operations).parameters.values()
        wrapper.__signature__ = inspect.Signature([*own, *taken])  # type: ignore[attr-defined]  # documented in inspect
        return wrapper

    return decorate
