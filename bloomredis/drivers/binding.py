"""A client bound to operations, and the docstrings of the public classes."""

from __future__ import annotations

import copy
import functools
import inspect
from collections.abc import Callable, Sequence
from dataclasses import fields
from typing import TYPE_CHECKING, Any, ClassVar, Generic, NoReturn, Self, TypeVar, cast

from bloomredis.arguments import shown
from bloomredis.drivers.connections.direct import connect_direct
from bloomredis.drivers.connections.urls import connected, connecting, is_address
from bloomredis.drivers.others import Others
from bloomredis.operations.events import Hook
from bloomredis.operations.kinds.filter import FilterOperations
from bloomredis.operations.kinds.routed import RoutedOperations
from bloomredis.operations.options import Options, Seconds
from bloomredis.protocol import forks
from bloomredis.protocol.cluster import is_cluster
from bloomredis.protocol.keys import is_in_one_slot

C = TypeVar("C")
F = TypeVar("F", bound=Callable[..., object])
T = TypeVar("T")
Operations = FilterOperations | RoutedOperations
"""The verbs of a filter: in one part, or in several."""


class Bound(Generic[C]):
    """Operations of a filter together with a client.

    It pickles without the client, which has to be given again: `with_client`.  One with a URL pickles with
    that, and has no client until it is used.
    """

    _OF_CLIENT: ClassVar = frozenset(("_client", "_link", "_coalesce", "_adds", "_tests"))
    """What is missing until then."""

    _is_asyncio: ClassVar[bool]
    """True if the class is for asyncio clients."""
    _link: Any
    """What calls go through: kept connections of the client, or the client.

    Of several servers, or several filters, it is a list, as deep as `Call.server` says.
    """
    _operations: Operations
    _observe: Hook | None = None
    """Its own hook."""
    _stored_operations: ClassVar[Callable[..., Operations] | None] = None
    """Makes the operations of a filter whose parameters are read from the server; None if the class does."""
    _OPTIONS: ClassVar[frozenset[str]] = frozenset(each.name for each in fields(Options))
    """What `open` takes."""

    def __init__(self, client: C | Sequence[C], operations: Operations) -> None:
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
        self._operations = operations
        self._observe = operations.options.observe
        self._others = Others[Self]()
        self._address = client if is_address(client) else None
        if self._address is None:
            self._client = cast("C", client)  # of several servers a sequence: `Call.server` names one
            self._bind()

    if not TYPE_CHECKING:  # which would let any name pass

        def __getattr__(self, name: str) -> Any:
            address = self.__dict__.get("_address")
            if address is None or name not in self._OF_CLIENT:
                raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
            forks.check()
            with connecting.lock:
                if "_client" not in self.__dict__:
                    self._client = connected(address, is_asyncio=self._is_asyncio)
                    self._bind()
            return self.__dict__[name]

    def _check_kind(self, client: object) -> None:
        own = type(self).__name__
        if isinstance(client, _NoClient) or is_address(client):
            return
        if isinstance(client, list | tuple) and not client:
            raise ValueError("a list of clients must have at least one")
        for each in client if isinstance(client, list | tuple) else [client]:
            check_client(each, own)
            if is_asyncio(each) != is_asyncio(client):
                raise TypeError("all clients of a filter must be asyncio clients, or none of them")
        if is_asyncio(client) == self._is_asyncio:
            return
        given = type(client[0] if isinstance(client, list | tuple) else client).__name__
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

    def _check_slots(self) -> None:
        """Raise `ValueError` for a name whose keys a cluster would keep apart."""
        client: Any = self._client
        clients = client if isinstance(client, list | tuple) else [client]
        on_cluster = any(is_cluster(each.__class__) for each in clients)
        if on_cluster and not is_in_one_slot(self.name.encode()):
            raise ValueError(
                f"name must have no '}}' before its hash tag on a cluster, where {shown(self.name)} and its "
                "receipts would lie in different slots; give it another name, or a tag as in '{tag}name'"
            )

    def _own_clients(self) -> list[Any]:
        """Return the clients that were made by the filter itself."""
        own = self.__dict__.get("_client") if self._address is not None else None
        return own if isinstance(own, list) else [own] if own is not None else []

    def _linked(self) -> Any:
        """Return the kept connections of the client, or the client."""
        if isinstance(self._client, _NoClient):
            return self._client
        self._check_slots()
        return connect_direct(self._client, self._operations.options.keep_connection)

    def _bind(self) -> None:
        """Make the objects that depend on the client."""

    @classmethod
    def _from_server(cls, client: C | Sequence[C], name: str, **options: Any) -> Self:
        """Return a filter whose parameters are read from the server at its first call."""
        for option in options.keys() - cls._OPTIONS:
            raise TypeError(
                f"{cls.__name__}.open() takes no {option}, which is read from the server; it takes "
                f"{', '.join(sorted(cls._OPTIONS))}"
            )
        if cls._stored_operations is None:
            made: Self = cast("Any", cls)(client, name, **options)
            return made
        filter_ = cls.__new__(cls)
        Bound.__init__(filter_, client, cls._stored_operations(name, **options))
        return filter_

    @property
    def name(self) -> str:
        """The filter's key."""
        return self._operations.name

    def with_client(self, client: C | Sequence[C]) -> Self:
        """Return the same filter over another client: in another process, thread or event loop."""
        made = type(self).__new__(type(self))
        Bound.__init__(made, client, self._operations)
        return made

    def _at(self, name: str, ttl: Seconds | None) -> Self:
        """Return the filter of another name in the same layout."""
        found = self._others.get((name, ttl))
        if found is None:
            verbs: Any = self._operations  # those of `BloomFilter`, which alone has other names
            operations = verbs.at(name, ttl)
            made = self._over_the_same(operations, self._others)
            found = self._others.keep((name, ttl), made, operations)
        return found

    def __repr__(self) -> str:
        known = [f"{name}={value!r}" for name, value in self._operations.known().items()]
        return f"{type(self).__name__}({', '.join([shown(self.name), *known])})"

    def __copy__(self) -> Self:
        return self._over_the_same(self._operations)

    def __deepcopy__(self, memo: dict[int, object]) -> Self:
        return self._over_the_same(copy.deepcopy(self._operations, memo))

    def _over_the_same(self, operations: Operations, others: Others[Self] | None = None) -> Self:
        """Return a filter with these operations and the same client or address."""
        other = type(self).__new__(type(self))
        other.__dict__.update(
            _address=self._address,
            _operations=operations,
            _observe=self._observe,
            _others=others or Others[Self](),
        )
        if "_client" in self.__dict__:
            other._client = self._client  # noqa: SLF001 - its own class
            other._bind()  # noqa: SLF001
        return other

    def __getstate__(self) -> object:
        return self._operations, self._address

    def __setstate__(self, state: Any) -> None:
        operations, address = state
        client: Any = address or _NoClient()
        Bound.__init__(self, client, operations)


class _NoClient:
    """Takes the place of the client in a filter that was unpickled; any call raises RuntimeError."""

    def execute_command(self, *_: object, **__: object) -> NoReturn:
        raise RuntimeError("a filter that was pickled has no client; give it one: filter.with_client(client)")

    pipeline = __getitem__ = execute_command


def check_client(client: object, class_name: str) -> None:
    """Raise `TypeError` for what is no client, or a pipeline."""
    given = type(client).__name__
    if isinstance(client, str | bytes):  # not shown: a URL may have a password
        raise TypeError(
            f"client must be a client of redis-py or valkey-py, not a {given}; "
            f"{class_name}.from_url(url, name) takes a URL"
        )
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


def constructor(init: F) -> F:
    """Let an error for a wrong argument of a constructor name the public class."""
    signature = inspect.signature(init)

    @functools.wraps(init)
    def wrapper(self: object, *arguments: object, **options: object) -> None:
        try:
            signature.bind(self, *arguments, **options)
        except TypeError as error:
            raise TypeError(f"{type(self).__name__}(): {error}") from None
        init(self, *arguments, **options)

    return wrapper  # type: ignore[return-value]  # the same to its callers


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
                inspect.unwrap(method).__doc__ = method.__doc__ = getattr(twin, name).__doc__
        return class_

    return decorate
