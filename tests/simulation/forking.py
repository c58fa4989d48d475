"""The effect of fork() on a process's objects: each exists twice, with the same content.

Pickling and `copy.deepcopy` leave out what an object excludes from another process, so they differ from a
fork.
"""

from __future__ import annotations

import copy
import inspect
import re
import types
from collections import deque
from collections.abc import Callable
from enum import Enum
from functools import cache, partial
from itertools import count
from typing import Any, Final
from weakref import WeakKeyDictionary, WeakSet, WeakValueDictionary

import numpy as np

from bloomredis.errors import FilterLostError
from tests.simulation.environment import modules

_SHARED: Final = (
    *(type(None), bool, int, float, complex, str, bytes, range, slice, type, Enum, frozenset),
    *(types.FunctionType, types.BuiltinFunctionType, types.ModuleType, property, BaseException),
)
"""Types of immutable objects, which both processes share."""

_FORGOTTEN: Final = (WeakKeyDictionary, WeakValueDictionary, WeakSet)
"""Registries of objects outside the process: their copies start empty."""


class Forked:
    """Copies of objects, each made once.

    :ivar copies: the copy of each object, by the object's id.
    """

    def __init__(self) -> None:
        self.copies: dict[int, Any] = {}
        self._alive: list[Any] = []  # keeps each object alive, so that its id is not reused

    def __call__(self, thing: Any) -> Any:
        """Return the child's object for one of the parent's."""
        if isinstance(thing, _SHARED) and not isinstance(thing, FilterLostError):
            return thing
        if id(thing) in self.copies:
            return self.copies[id(thing)]
        self._alive.append(thing)
        made = (
            self._container(thing)
            if isinstance(thing, list | dict | set | tuple | deque)
            else self._made(thing)
        )
        self.copies[id(thing)] = made
        return made

    def _container(self, thing: Any) -> Any:
        if isinstance(thing, tuple):
            items = [self(item) for item in thing]
            return type(thing)(*items) if hasattr(thing, "_fields") else tuple(items)
        empty = copy.copy(thing)
        empty.clear()
        self.copies[id(thing)] = empty
        if isinstance(thing, dict):
            present = [*thing.items()]  # a finaliser may add to it meanwhile
            empty.update({self(key): self(value) for key, value in present})
        elif isinstance(thing, set):
            empty.update(map(self, thing))
        else:
            empty.extend(map(self, thing))
        return empty

    def _made(self, thing: Any) -> Any:
        if isinstance(thing, np.ndarray | bytearray):
            return bytearray(thing) if isinstance(thing, bytearray) else self._array(thing)
        if isinstance(thing, FilterLostError):
            made = copy.copy(thing)
            made.told = self(thing.told)  # a process tells its own callers
            return made
        if isinstance(thing, types.MethodType):
            return types.MethodType(thing.__func__, self(thing.__self__))
        if isinstance(thing, partial):
            return partial(self(thing.func), *map(self, thing.args), **self(thing.keywords))
        if isinstance(thing, _FORGOTTEN):
            return type(thing)()
        return self._object(thing)

    def _object(self, thing: Any) -> Any:
        if isinstance(thing, count):
            return count(int(repr(thing)[len("count(") : -1]))  # Python 3.14 copies none
        if not hasattr(thing, "__dict__") and not _slots(thing):
            return copy.copy(thing)  # such as an iterator of the standard library
        made = object.__new__(type(thing))
        self.copies[id(thing)] = made
        for name in (*getattr(thing, "__dict__", ()), *_slots(thing)):
            if hasattr(thing, name):
                object.__setattr__(made, name, self(getattr(thing, name)))  # works for frozen objects, too
        return made

    def _array(self, thing: Any) -> Any:
        base = thing.base.obj if isinstance(thing.base, memoryview) else thing.base
        if isinstance(base, bytearray):  # its owner writes to it too
            return np.frombuffer(self(base), dtype=thing.dtype)
        return thing.copy()


def _slots(thing: Any) -> list[str]:
    names = [getattr(kind, "__slots__", ()) for kind in type(thing).__mro__]
    each = [name for some in names for name in ((some,) if isinstance(some, str) else some)]
    return [name for name in each if name not in ("__dict__", "__weakref__")]


_REGISTERED: Final = re.compile(r"register_at_fork\(\s*after_in_child=(\w+)")


@cache
def _hooks(module: types.ModuleType) -> list[Callable[[], object]]:
    """Return a module's functions that it registers for a forked child."""
    return [getattr(module, name) for name in _REGISTERED.findall(inspect.getsource(module))]


def _registries() -> list[tuple[list[Callable[[], object]], list[WeakSet[Any]]]]:
    """Return the hooks of each module that has some, with its registries of objects."""
    return [
        (hooks, [value for value in vars(module).values() if isinstance(value, WeakSet)])
        for module in modules()
        if (hooks := _hooks(module))
    ]


def inherit(forked: Forked) -> None:
    """Add the copies to the registries that contain their originals."""
    for _, registries in _registries():
        for registry in registries:
            registry.update([forked.copies[id(each)] for each in registry if id(each) in forked.copies])


def after_fork(forked: Forked) -> None:
    """Call the hooks of the modules of bloomredis for a child, on the child's objects only."""
    for hooks, registries in _registries():
        before = [list(registry) for registry in registries]
        for registry, members in zip(registries, before, strict=True):
            registry.clear()
            registry.update(forked.copies[id(each)] for each in members if id(each) in forked.copies)
        for hook in hooks:
            hook()
        for registry, members in zip(registries, before, strict=True):
            registry.update(members)
