"""How a public class gets its methods from operations without their being written again.

A driver's class says `clear = run(FilterOperations.clear)`: type checkers see the operation's
parameters and its answer, and so do `help()` and `inspect`.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Concatenate, Generic, NoReturn, ParamSpec, Protocol, Self, TypeVar

P = ParamSpec("P")
S = TypeVar("S")
C = TypeVar("C")
F = TypeVar("F", bound=Callable[..., Any])


class Operations(Protocol):
    """What the operations say of themselves."""

    min_replicas: int
    servers: int

    @property
    def name(self) -> str:
        """The name of the filter's key."""


O = TypeVar("O", bound=Operations)  # noqa: E741 - the operations


class Bound(Generic[C, O]):
    """Operations together with the client that executes them.

    It pickles without the client, which has to be given again: `with_client`.
    """

    _is_asyncio: ClassVar[bool]
    """What clients the class is for."""

    def __init__(self, client: C, operations: O) -> None:
        self._check_kind(client)
        if isinstance(client, list | tuple):
            self._check_servers(client, operations)
            client = client if operations.servers > 1 else client[0]
        elif isinstance(client, _NoClient):
            pass
        elif operations.servers > 1:
            raise ValueError(
                f"{operations.name!r} is on {operations.servers} servers: give a list of clients"
            )
        self._client = client
        self._operations = operations
        self._bind()

    def _check_kind(self, client: object) -> None:
        own, given = type(self).__name__, type(client).__name__
        if isinstance(client, _NoClient) or is_asyncio(client) == self._is_asyncio:
            return
        if self._is_asyncio:
            raise TypeError(f"{given} is no asyncio client; use bloomredis.{own}")
        raise TypeError(f"{given} is an asyncio client; use bloomredis.asyncio.{own}")

    @staticmethod
    def _check_servers(clients: Sequence[object], operations: Operations) -> None:
        if len(clients) != operations.servers:
            raise ValueError(
                f"{operations.name!r} is on {operations.servers} servers, not on {len(clients)}; "
                "give a client of each, in the order of the layout's servers"
            )

    def _bind(self) -> None:
        """Make what depends on the client."""

    @property
    def name(self) -> str:
        """The filter's key."""
        return self._operations.name

    def with_client(self, client: C) -> Self:
        """Return the same filter over another client: in another process, thread or event loop."""
        other = type(self).__new__(type(self))
        Bound.__init__(other, client, self._operations)
        return other

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r})"

    def __getstate__(self) -> O:
        return self._operations

    def __setstate__(self, operations: O) -> None:
        no_client: Any = _NoClient()
        Bound.__init__(self, no_client, operations)


class _NoClient:
    """What a filter has instead of a client when it comes out of a pickle."""

    def execute_command(self, *_: object, **__: object) -> NoReturn:
        raise RuntimeError("a filter that was pickled has no client; give it one: filter.with_client(client)")

    pipeline = __getitem__ = execute_command


def presented_as(operation: Callable[..., Any], method: Callable[..., Any]) -> None:
    """Give `method` the name, docstring and parameters of `operation`, and its answer as return type."""
    functools.update_wrapper(method, operation)
    signature = inspect.signature(operation)
    answer = str(signature.return_annotation).removeprefix("Op[").removesuffix("]")
    method.__signature__ = signature.replace(return_annotation=answer)  # type: ignore[attr-defined]  # documented in inspect
    method.__annotations__ = {**operation.__annotations__, "return": answer}


def documented_by(operation: Callable[..., Any]) -> Callable[[F], F]:
    """Give a method the docstring of the operation that it executes."""

    def decorate(method: F) -> F:
        method.__doc__ = operation.__doc__
        return method

    return decorate


def is_asyncio(client: object) -> bool:
    """Return whether a client, or the first of several, is one of asyncio."""
    first = client[0] if isinstance(client, list | tuple) and client else client
    return inspect.iscoroutinefunction(getattr(first, "execute_command", None))


def built_by(
    operations: Callable[P, O], make: Callable[..., O] | None = None
) -> Callable[[Callable[[S, C, O], None]], Callable[Concatenate[S, C, P], None]]:
    """Let `__init__(self, client, operations)` take a client and whatever makes the operations.

    They are made by `make`, if it is given, which takes the same arguments.
    """

    def decorate(init: Callable[[S, C, O], None]) -> Callable[Concatenate[S, C, P], None]:
        @functools.wraps(init)
        def wrapper(self: S, client: C, /, *args: P.args, **kwargs: P.kwargs) -> None:
            init(self, client, (make or operations)(*args, **kwargs))

        own = list(inspect.signature(init).parameters.values())[:2]
        taken = inspect.signature(operations).parameters.values()
        wrapper.__signature__ = inspect.Signature([*own, *taken])  # type: ignore[attr-defined]  # documented in inspect
        return wrapper

    return decorate
