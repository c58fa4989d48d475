"""A client bound to operations, and the signatures and docstrings of the public classes.

A constructor takes its signature from the operations and from `Options`, and checks calls by it.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence
from dataclasses import fields
from typing import Any, ClassVar, Generic, NoReturn, Self, TypeVar, cast

from bloomredis.drivers.others import Others
from bloomredis.operations.options import Options

C = TypeVar("C")
F = TypeVar("F", bound=Callable[..., Any])
T = TypeVar("T")


class Bound(Generic[C]):
    """Operations of a filter together with a client.

    It pickles without the client, which has to be given again: `with_client`.
    """

    _is_asyncio: ClassVar[bool]
    """True if the class is for asyncio clients."""
    _operations: Any
    _stored_operations: ClassVar[Callable[[str], Any]]
    """Makes the operations of a filter whose parameters are read from the server."""

    def __init__(self, client: C | Sequence[C], operations: Any, others: Others[Self] | None = None) -> None:
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
        self._client = cast("C", client)  # of several servers a sequence: `OnServer` names one
        self._operations = operations
        self._others = others or Others[Self]()
        self._bind()

    def _check_kind(self, client: object) -> None:
        own, given = type(self).__name__, type(client).__name__
        if isinstance(client, _NoClient) or is_asyncio(client) == self._is_asyncio:
            return
        if self._is_asyncio:
            raise TypeError(f"{given} is no asyncio client; use bloomredis.{own}")
        raise TypeError(f"{given} is an asyncio client; use bloomredis.asyncio.{own}")

    @staticmethod
    def _check_servers(clients: Sequence[object], operations: Any) -> None:
        if len(clients) != operations.servers:
            raise ValueError(
                f"{operations.name!r} is on {operations.servers} servers, not on {len(clients)}; "
                "give a client of each, in the order of the layout's servers"
            )

    def _bind(self) -> None:
        """Make the objects that depend on the client."""

    @classmethod
    def _from_server(cls, client: C, name: str) -> Self:
        """Return a filter whose parameters are read from the server at its first call."""
        filter_ = cls.__new__(cls)
        Bound.__init__(filter_, client, cls._stored_operations(name))
        return filter_

    @property
    def name(self) -> str:
        """The filter's key."""
        name: str = self._operations.name
        return name

    def with_client(self, client: C | Sequence[C]) -> Self:
        """Return the same filter over another client: in another process, thread or event loop."""
        return self._over(client, self._operations)

    def _over(self, client: C | Sequence[C], operations: Any, others: Others[Self] | None = None) -> Self:
        made = type(self).__new__(type(self))
        Bound.__init__(made, client, operations, others)
        return made

    def _at(self, name: str, ttl: Any) -> Self:
        """Return the filter of another name in the same layout."""
        found = self._others.get((name, ttl))
        if found is None:
            operations = self._operations.at(name, ttl)
            made = self._over(self._client, operations, self._others)
            found = self._others.keep((name, ttl), made, operations)
        return found

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r})"

    def __getstate__(self) -> Any:
        return self._operations

    def __setstate__(self, operations: Any) -> None:
        no_client: Any = _NoClient()
        Bound.__init__(self, no_client, operations)


class _NoClient:
    """Takes the place of the client in a filter that was unpickled; any call raises RuntimeError."""

    def execute_command(self, *_: object, **__: object) -> NoReturn:
        raise RuntimeError("a filter that was pickled has no client; give it one: filter.with_client(client)")

    pipeline = __getitem__ = execute_command


def is_asyncio(client: object) -> bool:
    """Return True if a client, or the first of several, is an asyncio client."""
    first = client[0] if isinstance(client, list | tuple) and client else client
    return inspect.iscoroutinefunction(getattr(first, "execute_command", None))


def constructor(operations: Callable[..., Any]) -> Callable[[F], F]:
    """Give a constructor the parameters of `operations` and of `Options`, and check calls by them.

    An error for a wrong argument names the public class.
    """
    own = [
        each
        for each in inspect.signature(operations).parameters.values()
        if each.kind != each.VAR_KEYWORD and each.name != "self"
    ]
    common = [
        inspect.Parameter(
            each.name, inspect.Parameter.KEYWORD_ONLY, default=each.default, annotation=each.type
        )
        for each in fields(Options)
    ]

    def decorate(init: F) -> F:
        first = list(inspect.signature(init).parameters.values())[:2]
        signature = inspect.Signature([*first, *own, *common])

        @functools.wraps(init)
        def wrapper(self: Any, *arguments: Any, **options: Any) -> None:
            try:
                signature.bind(self, *arguments, **options)
            except TypeError as error:
                raise TypeError(f"{type(self).__name__}(): {error}") from None
            init(self, *arguments, **options)

        wrapper.__signature__ = signature  # type: ignore[attr-defined]  # documented in inspect
        return wrapper  # type: ignore[return-value]  # the same to its callers

    return decorate


def documented(options: type) -> Callable[[F], F]:
    """Add the parameters in the docstring of `options` to the docstring of a class."""
    common = inspect.getdoc(options) or ""
    lines = common[common.index(":param") :].splitlines()
    described = "\n".join(f"    {line}" if line else line for line in lines)

    def decorate(class_: F) -> F:
        before, raises, after = (class_.__doc__ or "").rpartition("    :raises")
        class_.__doc__ = f"{before}{described}\n{raises}{after}"
        return class_

    return decorate


def documented_as(twin: type) -> Callable[[type[T]], type[T]]:
    """Give a class and its methods the docstrings of their synchronous twins, which begin with their own."""

    def decorate(class_: type[T]) -> type[T]:
        class_.__doc__ = twin.__doc__
        for name, member in vars(class_).items():
            method = getattr(member, "__func__", member)  # of a class method
            if inspect.isfunction(method) and not name.startswith("_"):
                method.__doc__ = getattr(twin, name).__doc__
        return class_

    return decorate
