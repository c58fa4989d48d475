"""Sizes of tests: a short one for `make test`, a long one for `make test-faults`."""

from __future__ import annotations

from typing import Any

import pytest


def long(*values: Any) -> Any:
    """Return a set of parameters for `make test-faults` alone."""
    return pytest.param(*values, id="long", marks=pytest.mark.faults)


def short(*values: Any) -> Any:
    """Return a set of parameters for `make test`."""
    return pytest.param(*values, id="short")


def sized(name: str, *, make_test: Any, make_test_faults: Any) -> pytest.MarkDecorator:
    """Run a test with a small number in `make test`, and with a large one in `make test-faults`."""
    return pytest.mark.parametrize(name, [short(make_test), long(make_test_faults)])


def examples() -> pytest.MarkDecorator:
    """Run a state machine with few examples in `make test`, and with many in `make test-faults`."""
    return sized("examples", make_test=20, make_test_faults=60)
