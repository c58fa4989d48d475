"""One test for a rule that holds for many values: it tries all of them, and lists those that fail."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from functools import wraps
from typing import Any

import pytest

Test = Callable[..., None]
_STORES = ("client", "any_client")


def each(names: str, values: Iterable[Any]) -> Callable[[Test], Test]:
    """Call a test with each value in turn, as `pytest.mark.parametrize` would, but as one test.

    Its fixtures are made once.  Clients among them are emptied between two values; whatever else a value
    leaves behind, in `monkeypatch` or a directory, the next one finds.

    :param names: the parameters, with commas between; values are tuples then.
    """
    parameters = names.replace(" ", "").split(",")
    cases = [
        dict(zip(parameters, value if len(parameters) > 1 else [value], strict=True)) for value in values
    ]

    def decorate(test: Test) -> Test:
        def tried(subtests: pytest.Subtests, **fixtures: Any) -> None:
            if "subtests" in own:
                fixtures["subtests"] = subtests
            for number, case in enumerate(cases):
                if number:
                    _empty(fixtures)
                try:
                    test(**fixtures, **case)
                except (Exception, pytest.fail.Exception, pytest.skip.Exception):
                    with subtests.test(**case):  # it reports the failure, and goes on
                        raise

        own = inspect.signature(test).parameters
        looped = wraps(test)(tried)
        asked = [one.replace(kind=one.KEYWORD_ONLY) for name, one in own.items() if name not in parameters]
        if "subtests" not in own:
            asked.append(inspect.Parameter("subtests", inspect.Parameter.KEYWORD_ONLY))
        looped.__signature__ = inspect.Signature(asked)  # type: ignore[attr-defined]  # pytest reads fixtures from it
        return looped

    return decorate


def _empty(fixtures: dict[str, Any]) -> None:
    for name in _STORES & fixtures.keys():
        fixtures[name].flushall()
        fixtures[name].script_flush()
