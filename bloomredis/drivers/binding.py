"""A client bound to operations, and the signatures and docstrings of the public classes.

A constructor takes its signature from the operations and from `Options`, and checks calls by it.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence
from dataclasses import fields
from typing import Any, ClassVar, Generic, NoReturn, Self, TypeVar, cast

from bloomredis.arguments import shown
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

    def __init__(self, client: C | Sequence[C], operations: Any) -> None:
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
        self._bind()

    def _check_kind(self, client: object) -> None:
        own = type(self).__name__
        if isinstance(client, _NoClient):
            return
        if isinstance(client, list | tuple) and not client:
            raise ValueError("a list of clients must have at least one")
        for each in client if isinstance(client, list | tuple) else [client]:
            check_client(each, own)
        if is_asyncio(client) == self._is_asyncio:
            return
        given = type(client[0] if isinstance(client, list | tuple) else client).__name__
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
        other = type(self).__new__(type(self))
        Bound.__init__(other, client, self._operations)
        return other

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


def check_client(client: object, class_name: str) -> None:
    """Raise `TypeError` for what is no client, or a pipeline."""
    given = type(client).__name__
    if isinstance(client, str | bytes):  # not shown: a URL may have a password
        raise TypeError(f"client must be a client of redis-py or valkey-py, not a {given}")
    if isinstance(client, type):
        raise TypeError(f"client must be a client, not the class {client.__name__}: call it")
    if any("Pipeline" in kind.__name__ for kind in type(client).__mro__):
        raise TypeError(
            f"client must be a client, not a {given}: give {class_name} the client that it was made from, "
            "and queue calls on it with queue_add(pipe, item)"
        )
    if not callable(getattr(client, "execute_command", None)):
        raise TypeError(f"client must be a client of redis-py or valkey-py, not {given} {shown(client)}")


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
