"""The base of all filters: operations bound to a client."""

from __future__ import annotations

import asyncio
import copy
import functools
import inspect
from collections.abc import Callable
from dataclasses import fields
from typing import TYPE_CHECKING, Any, ClassVar, Final, Generic, NoReturn, Self, TypeAlias, TypeVar, cast
from weakref import WeakKeyDictionary

from bloomredis.arguments import shown
from bloomredis.bits.module_items import ModuleItems
from bloomredis.drivers.aio import running_loop
from bloomredis.drivers.connections.urls import connecting, is_address
from bloomredis.errors import BloomError
from bloomredis.operations.options import DEFAULTS, Options
from bloomredis.protocol import forks
from bloomredis.protocol.cluster import is_cluster
from bloomredis.protocol.keys import is_in_one_slot

if TYPE_CHECKING:
    from bloomredis.operations.kinds.filter import FilterOperations
    from bloomredis.operations.kinds.sharded import ShardedOperations

    Operations: TypeAlias = FilterOperations | ShardedOperations
    """The operations of a filter in one part, or in shards."""

C = TypeVar("C")
F = TypeVar("F", bound=Callable[..., object])
T = TypeVar("T")

_checked: Final[WeakKeyDictionary[type, bool]] = WeakKeyDictionary()
"""The classes of clients that were checked: True for asyncio clients."""


class OfClient:
    """An attribute that depends on the client; a filter lacks it until its first call.

    With a URL each event loop has its own.
    """

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    def __get__(self, bound: Any, owner: type) -> Any:
        if bound is None:
            return self
        return bound._of_client(self._name)


class Bound(Generic[C]):
    """The operations of a filter, bound to a client.

    The object pickles without its client; `with_client` gives it another one.  With a URL in the place of a
    client it pickles with the URL, and gets a client at its first call.
    """

    _is_asyncio: ClassVar[bool]
    """True if the class is for asyncio clients."""
    _transport: Any
    """The transport of calls: a direct client, or the client itself."""
    _operations: Operations
    _OPTIONS: ClassVar[frozenset[str]] = frozenset(each.name for each in fields(Options))
    """The options that `open` takes."""

    if not TYPE_CHECKING:  # type checkers see attributes of an instance
        _client, _transport, _contains = (OfClient() for _ in range(3))

    def __init__(self, client: C, operations: Operations) -> None:
        self._operations = operations
        self._by_loop: dict[object, Self] = {}
        self._address: Any = client if is_address(client) else None
        if self._address is None:
            self._check_kind(client)
            self._client = client
            self._check_slots()

    def _of_client(self, name: str) -> Any:
        """Return an attribute that depends on the client; the first use makes the client of the URL."""
        forks.detect_fork()
        if self._address is None:
            self._bind()  # threads may do so at the same time: any of their transports will do
        elif self._is_asyncio:
            return getattr(self._in_this_loop(self._address), name)
        else:
            with connecting.lock:
                if "_client" not in self.__dict__:
                    self._client = self._address.client(is_asyncio=False)
                self._check_slots()
                self._bind()
        return self.__dict__[name]

    if not TYPE_CHECKING:  # type checkers would accept any name

        def __getattr__(self, name: str) -> NoReturn:
            if name == "remove":
                raise AttributeError(
                    f"a {type(self).__name__} has no remove(): items can only be removed from a "
                    "CountingBloomFilter"
                )
            return super().__getattribute__(name)  # raises the error for the name

    def __dir__(self) -> list[str]:
        return [name for name in super().__dir__() if name.startswith("__") or not name.startswith("_")]

    def _in_this_loop(self, address: Any) -> Self:
        """Return this filter over a client of the running event loop: a connection belongs to one loop."""
        loop = running_loop()
        found = self._by_loop.get(loop)
        if found is None:
            with connecting.lock:
                found = self._by_loop[loop] = self.with_client(address.client(is_asyncio=True))
                # After that, since a private server ends with the last of its clients.
                for other in [each for each in self._by_loop if each.is_closed()]:  # type: ignore[attr-defined]  # a loop
                    del self._by_loop[other]
        return found

    def _check_kind(self, client: object) -> None:
        own, kind = type(self).__name__, type(client)
        if kind is _NoClient or _checked.get(kind) is self._is_asyncio:
            return
        check_client(client, own)
        if is_asyncio(client) == self._is_asyncio:
            if hasattr(kind, "execute_command"):  # else each object has its own
                _checked[kind] = self._is_asyncio
            return
        given = type(client).__name__
        if self._is_asyncio:
            raise TypeError(
                f"{given} is no asyncio client; use bloomredis.{own}, or make the client with "
                "bloomredis.asyncio.connect() or redis.asyncio"
            )
        raise TypeError(f"{given} is an asyncio client; use bloomredis.asyncio.{own}")

    def _check_slots(self) -> None:
        """Raise `ValueError` for a name whose keys would lie in different slots of a cluster."""
        kind: type = self._client.__class__
        if is_cluster(kind) and not is_in_one_slot(self.name.encode()):
            raise ValueError(
                f"name must have no '}}' before its hash tag on a cluster, where {shown(self.name)} and its "
                "receipts would lie in different slots; give it another name, or a tag as in '{tag}name'"
            )

    def _own_client(self) -> Any:
        """Return the client that the filter has made itself; None if there is none."""
        if self._address is None:
            return None
        if self._is_asyncio:
            here = self._by_loop.pop(asyncio.get_running_loop(), None)
            return None if here is None else here._client
        return self.__dict__.get("_client")

    def _bind(self) -> None:
        """Make the objects that depend on the client."""

    @classmethod
    def _from_server(cls, client: C, name: str, **options: Any) -> Self:
        """Return a filter that reads its parameters from the server at its first call."""
        for option in options.keys() - cls._OPTIONS:
            raise TypeError(
                f"{cls.__name__}.open() takes no {option}, which is read from the server; it takes "
                f"{', '.join(sorted(cls._OPTIONS))}"
            )
        made: Self = cast("Any", cls)(client, name, **options)
        return made

    def _reopened(self) -> Self:
        """Return an object for the filter as it is stored now, whatever this object has used before.

        It does not create the filter.  The object itself, if no loss of its filter can be detected.
        """
        operations: Any = self._operations
        if getattr(operations, "layout", None) is not None:  # that of another system
            return self
        options, layout = operations.options, operations.local_parameters().get("layout")
        given = {"encode": options.encode}
        client = self._address if self._is_asyncio and self._address is not None else self._client
        if layout == ModuleItems.name:
            made: Self = cast("Any", type(self))(client, self.name, layout=layout, **given)
            return made
        return self._from_server(client, self.name, **given)

    @property
    def name(self) -> str:
        """The filter's key."""
        return self._operations.name

    def with_client(self, client: C) -> Self:
        """Return the same filter over another client: in another process, thread or event loop."""
        made = type(self).__new__(type(self))
        Bound.__init__(made, client, self._operations)
        return made

    def __repr__(self) -> str:
        known = [f"{name}={value!r}" for name, value in self._operations.local_parameters().items()]
        return f"{type(self).__name__}({', '.join([shown(self.name), *known])})"

    def __copy__(self) -> Self:
        return self._over_the_same(self._operations)

    def __deepcopy__(self, memo: dict[int, object]) -> Self:
        return self._over_the_same(copy.deepcopy(self._operations, memo))

    def _over_the_same(self, operations: Operations) -> Self:
        """Return a filter with these operations and the same client or address."""
        other = type(self).__new__(type(self))
        other.__dict__.update(
            _address=self._address,
            _operations=operations,
            _by_loop={},
        )
        if "_client" in self.__dict__:
            other._client = self._client
        return other

    def __getstate__(self) -> object:
        return self._operations, self._address

    def __setstate__(self, state: Any) -> None:
        operations, address = state
        client: Any = address or _NoClient()
        Bound.__init__(self, client, operations)


class NoClientError(BloomError, RuntimeError):
    """A filter that was unpickled was used without a client."""


class _NoClient:
    """The placeholder for the client in a filter that was unpickled; any call raises."""

    def execute_command(self, *_: object, **__: object) -> NoReturn:
        raise NoClientError(
            "a filter that was pickled has no client", advice="give it one: filter.with_client(client)"
        )

    pipeline = execute_command


def check_client(client: object, class_name: str) -> None:
    """Raise `TypeError` for an object that is not a client."""
    given = type(client).__name__
    if isinstance(client, list | tuple):
        raise TypeError(
            f"{class_name} takes one client, not a {given}; to spread a ShardedBloomFilter over several "
            "servers, make them a cluster and give its client, or a URL with redis+cluster://"
        )
    if isinstance(client, str | bytes):  # its text stays out of the error: a URL may have a password
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
    if hasattr(type(client), "master_for"):  # of the class, since a mock has every attribute
        raise TypeError(
            f"client must be a client, not a {given}: give {class_name} that of the primary, "
            "sentinel.master_for('mymaster'), which follows a failover"
        )
    if callable(getattr(client, "get_connection", None)) and not hasattr(client, "execute_command"):
        raise TypeError(f"client must be a client, not a {given}: give redis.Redis(connection_pool=pool)")
    if not all(callable(getattr(client, name, None)) for name in ("execute_command", "pipeline")):
        raise TypeError(f"client must be a client of redis-py or valkey-py, not {given} {shown(client)}")


def is_asyncio(client: object) -> bool:
    """Return True if a client is an asyncio client."""
    return inspect.iscoroutinefunction(getattr(client, "execute_command", None))


_HINTS: Final = {
    "too many positional": "; all but client and name are keywords: capacity=1000, error_rate=0.01",
    "'on_full'": "; it is for a BloomFilter, of which one script counts all items",
}
"""What to add to the errors for wrong arguments, by a part of their text."""


def constructor(parameters: Any) -> Callable[[F], F]:
    """Return a decorator for a constructor, which passes its keywords on to the operations of a class.

    `help()` shows the keywords in the signature, with their types and defaults.  An error for wrong arguments
    names the public class.

    :param parameters: the typed dictionary of the keywords.
    """
    types = {name: each.__forward_arg__ for name, each in parameters.__annotations__.items()}
    keywords = [
        inspect.Parameter(
            name, inspect.Parameter.KEYWORD_ONLY, default=default,
            annotation=types[name],
        )
        for name, default in DEFAULTS.items()
        if name in types
    ]  # fmt: skip

    def decorate(init: F) -> F:
        bare = inspect.signature(init)
        signature = bare.replace(parameters=[*list(bare.parameters.values())[:-1], *keywords])

        def call(self: object, *arguments: object, **options: object) -> None:
            try:
                init(self, *arguments, **options)
            except TypeError:
                try:
                    signature.bind(self, *arguments, **options)
                except TypeError as error:
                    hint = next((hint for part, hint in _HINTS.items() if part in str(error)), "")
                    raise TypeError(f"{type(self).__name__}(): {error}{hint}") from None
                raise

        call.__code__ = call.__code__.replace(co_name="__init__")  # tracebacks show the public method
        wrapper = functools.wraps(init)(call)
        wrapper.__signature__ = signature  # type: ignore[attr-defined]  # `inspect` reads it
        return wrapper  # type: ignore[return-value]  # same signature

    return decorate
