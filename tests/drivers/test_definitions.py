"""Public methods as `help()` finds them: definitions with signatures and docstrings."""

from __future__ import annotations

import ast
import functools
import inspect
import pydoc
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any, Required, get_origin, get_type_hints

import pytest
import redis.asyncio

import bloomredis
import bloomredis.asyncio
from bloomredis.operations import options
from bloomredis.operations.kinds.counting import CountingOperations
from bloomredis.operations.kinds.plain import PlainOperations
from bloomredis.operations.kinds.rotating import RotatingOperations
from bloomredis.operations.kinds.scaling import ScalingOperations
from bloomredis.operations.kinds.sharded import ShardedOperations
from tests.support.counting_calls import counted_calls
from tests.support.values import for_each
from tools import generate

Definition = ast.FunctionDef | ast.AsyncFunctionDef
KINDS = [
    "BloomFilter",
    "CountingBloomFilter",
    "RotatingBloomFilter",
    "ScalingBloomFilter",
    "ShardedBloomFilter",
]
HALVES = [bloomredis, bloomredis.asyncio]
CLASSES = [getattr(half, name) for half in HALVES for name in [*KINDS, "Claim"]]
each_class = for_each("cls", CLASSES)


def members(cls: type) -> Iterator[tuple[str, Any]]:
    """Yield the name and function of each public method and property, and of the constructor."""
    for name in dir(cls):
        member = inspect.getattr_static(cls, name)
        member = getattr(member, "fget", None) or getattr(member, "__func__", member)
        if name == "__init__" or not name.startswith("_"):
            yield name, inspect.unwrap(member)


def definition(function: Any) -> Definition:
    """Return the `def` that an editor jumps to."""
    code = function.__code__
    return definitions(code.co_filename)[code.co_firstlineno]


@functools.cache
def definitions(path: str) -> dict[int, Definition]:
    """Return the definitions of a file by their first lines, decorators included."""
    return {
        min([node.lineno, *(each.lineno for each in node.decorator_list)]): node
        for node in ast.walk(ast.parse(Path(path).read_text()))
        if isinstance(node, Definition)
    }


@each_class
def test_a_definition_has_a_signature(cls: type) -> None:
    """Every parameter and return value has a type in the source."""
    untyped = []
    for name, function in members(cls):
        node = definition(function)
        arguments = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
        arguments += [each for each in (node.args.vararg, node.args.kwarg) if each is not None]
        types = [each.annotation for each in arguments if each.arg not in {"self", "cls"}]
        if None in [*types, node.returns]:
            untyped.append(name)
    assert untyped == []


@each_class
def test_a_definition_has_its_own_docstring(cls: type) -> None:
    """It stands in the source, not added by a decorator; a constructor's docstring is that of its class."""
    bare = [
        name
        for name, each in members(cls)
        if name != "__init__" and ast.get_docstring(definition(each)) is None
    ]
    assert bare == []


@for_each("name", KINDS)
def test_both_halves_have_the_same_face(name: str) -> None:
    """A class has the same methods, parameters and docstrings in both halves, but for `async` and `await`."""
    ours, theirs = (dict(members(getattr(half, name))) for half in HALVES)
    theirs.pop("aclose", None)  # only another name of `close`
    assert ours.keys() == theirs.keys()
    parameters = [
        {verb: list(inspect.signature(each).parameters) for verb, each in half.items()}
        for half in (ours, theirs)
    ]
    assert parameters[0] == parameters[1]
    texts = {verb: generate.WORDS.sub("", inspect.getdoc(each) or "") for verb, each in theirs.items()}
    assert {verb: inspect.getdoc(each) or "" for verb, each in ours.items()} == texts


@for_each("half", HALVES)
@for_each("name", KINDS)
def test_a_constructor_shows_its_parameters(half: Any, name: str) -> None:
    """They are those that type checkers see: keyword-only, and with a default if they may be omitted."""
    typed = getattr(options, name.replace("BloomFilter", "") + "Parameters", options.PlainParameters)
    client, key, *others = inspect.signature(getattr(half, name)).parameters.values()
    assert (client.name, key.name) == ("client", "name")
    types = get_type_hints(typed, include_extras=True)
    required = {key for key, type_ in types.items() if get_origin(type_) is Required}
    assert {each.name for each in others} == types.keys()
    assert {each.name for each in others if each.default is each.empty} == required
    assert {each.kind for each in others} == {inspect.Parameter.KEYWORD_ONLY}


OPERATIONS: dict[str, Any] = {
    "BloomFilter": PlainOperations,
    "CountingBloomFilter": CountingOperations,
    "RotatingBloomFilter": RotatingOperations,
    "ScalingBloomFilter": ScalingOperations,
    "ShardedBloomFilter": ShardedOperations,
}


@for_each("name", KINDS)
def test_a_constructor_has_the_defaults_of_the_operations(name: str) -> None:
    """A constructor passes all parameters on, and shows the defaults of the operations."""
    behind = {**signature(OPERATIONS[name]), **signature(options.Options)}
    shown = signature(getattr(bloomredis, name))
    assert {each: shown[each].default for each in shown.keys() - {"client", "name"}} == {
        each: behind[each].default for each in behind.keys() - {"name", "common"}
    }


ALL_OPTIONS: dict[str, Any] = {
    "on_lost": "recreate",
    "retry_safe": False,
    "encode": bloomredis.keyed("a secret of some length"),
    "min_replicas": 1,
    "replica_timeout": timedelta(seconds=1),
}


def signature(function: Any) -> dict[str, inspect.Parameter]:
    return dict(inspect.signature(function).parameters)


@for_each("half", HALVES)
@for_each("name", KINDS)
def test_a_constructor_is_cheap(half: Any, name: str) -> None:
    """A constructor calls few functions, and leaves the client to the first call."""
    client = getattr(redis, "asyncio" if half is bloomredis.asyncio else "client").Redis()
    arguments = REQUIRED["ScalingBloomFilter"] | REQUIRED.get(name, {})
    for given in (arguments, arguments | ALL_OPTIONS):
        kept = [getattr(half, name)(client, "first", **given)]
        with counted_calls() as calls:
            kept.append(getattr(half, name)(client, "second", **given))
        assert not calls.keys() & {"signature", "bind", "_get_protocol_attrs", "is_plain"}
        assert calls.total() <= 85, calls.most_common(5)


@for_each("half", HALVES)
@for_each("name", KINDS)
def test_help_shows_and_explains_every_parameter(half: Any, name: str) -> None:
    """`help()` of a class has the signature, and a line of the docstring for each parameter."""
    cls = getattr(half, name)
    text = pydoc.plain(pydoc.TextDoc().document(cls))
    assert _joined(f"{name}{inspect.signature(cls)}") in _joined(text)
    parameters = inspect.signature(cls).parameters
    assert [each for each in parameters if f":param {each}:" not in text] == []


def _joined(text: str) -> str:
    """Return a text without blanks and margins: from 3.13 on, pydoc writes one parameter on each line."""
    return "".join(line.removeprefix(" |") for line in text.splitlines()).replace(" ", "")


REQUIRED: dict[str, dict[str, Any]] = {
    "RotatingBloomFilter": {"capacity": 1_000, "error_rate": 0.01, "window": 60},
    "ScalingBloomFilter": {"capacity": 1_000, "error_rate": 0.01},
}
"""A constructor's required arguments besides the client and the name."""
MISTAKES: dict[str, tuple[list[Any], dict[str, Any], str]] = {
    "unknown": ([None, "x"], {"capcity": 3}, "'capcity'"),
    "positional": ([None, "x", 1_000], {}, "too many positional arguments"),
    "missing": ([None], {}, "missing a required argument: 'name'"),
}
"""Arguments of a wrong call, and the text of its error."""


@for_each("half", HALVES)
@for_each("name", KINDS)
@for_each("mistake", MISTAKES)
def test_an_error_of_a_constructor_names_the_class(half: Any, name: str, mistake: str) -> None:
    """It names the class that was called and the argument, not the internals."""
    arguments, wrong, says = MISTAKES[mistake]
    with pytest.raises(TypeError) as caught:
        getattr(half, name)(*arguments, **REQUIRED.get(name, {}), **wrong)
    message = str(caught.value)
    assert message.startswith(f"{name}(")
    assert says in message
    assert "operations" not in message.lower()
    assert "__init__" not in message


@for_each("half", HALVES)
def test_a_missing_window_is_named(half: Any) -> None:
    """The message says which argument is missing."""
    with pytest.raises(TypeError, match=r"^window is missing: the seconds "):
        half.RotatingBloomFilter(None, "x", capacity=1_000, error_rate=0.01)
