"""Sizes of tests: a short one for `make test`, a long one for `make test-all`."""

from __future__ import annotations

from typing import Any

import pytest


def long(*values: Any) -> Any:
    """Return a set of parameters for `make test-all`, and some runs of CI."""
    return pytest.param(*values, id="long", marks=pytest.mark.long)


def short(*values: Any) -> Any:
    """Return a set of parameters for `make test`."""
    return pytest.param(*values, id="short")


def sized(name: str, *, make_test: Any, make_test_all: Any) -> pytest.MarkDecorator:
    """Run a test with a small number in `make test`, and with a large one in `make test-all`."""
    return pytest.mark.parametrize(name, [short(make_test), long(make_test_all)])


def examples() -> pytest.MarkDecorator:
    """Run a state machine with few examples in `make test`, and with many in `make test-all`."""
    return sized("examples", make_test=20, make_test_all=60)
