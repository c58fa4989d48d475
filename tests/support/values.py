"""One test for a rule over many values: it tries all of them, and lists those that fail."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from functools import wraps
from typing import Any

import pytest
import redis

from tests.support.servers import Server

Test = Callable[..., None]


def for_each(names: str | tuple[str, ...], values: Iterable[Any]) -> Callable[[Test], Test]:
    """Call a test with each value in turn, like `pytest.mark.parametrize`, but as one test.

    Its fixtures are made once. Servers are emptied between two values; other leftovers of a value, in
    `monkeypatch` or a directory, are visible to the next one.

    :param names: the parameters; values are tuples if there are several.
    """
    parameters = names.replace(" ", "").split(",") if isinstance(names, str) else names
    cases = [
        dict(zip(parameters, value if len(parameters) > 1 else [value], strict=True)) for value in values
    ]

    def decorate(test: Test) -> Test:
        return _Rule(test, cases).as_test()

    return decorate


class _Rule:
    """A test without its values, and the values."""

    def __init__(self, test: Test, cases: list[dict[str, Any]]) -> None:
        inner: _Rule | None = getattr(test, "rule", None)
        self.test: Test = inner.test if inner else test
        self.cases: list[dict[str, Any]] = (
            [outer | more for outer in cases for more in inner.cases] if inner else cases
        )

    def as_test(self) -> Test:
        """Return a test without parameters, with the name and the fixtures of the original."""

        def tried(subtests: pytest.Subtests, **fixtures: Any) -> None:
            for number, case in enumerate(self.cases):
                if number:
                    _empty(fixtures.values())
                try:
                    self.test(**fixtures, **case)
                except (Exception, pytest.fail.Exception, pytest.skip.Exception):
                    with subtests.test(**case):  # reports a failure and continues
                        raise

        wanted: Any = wraps(self.test)(tried)
        own = inspect.signature(self.test).parameters.items()
        fixtures = [one.replace(kind=one.KEYWORD_ONLY) for name, one in own if name not in self.cases[0]]
        subtests = inspect.Parameter("subtests", inspect.Parameter.KEYWORD_ONLY)
        wanted.__signature__ = inspect.Signature([*fixtures, subtests])  # read by pytest
        wanted.rule = self
        return wanted  # type: ignore[no-any-return]  # a function with attributes


def _empty(fixtures: Iterable[Any]) -> None:
    """Remove every key and script of the servers among a test's fixtures."""
    for fixture in fixtures:
        if isinstance(fixture, Server):
            fixture.empty()
        elif isinstance(fixture, redis.Redis):
            fixture.flushall()
            fixture.script_flush()
