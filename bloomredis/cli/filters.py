"""Creation and opening of filters of every kind, from options of the command line."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, Final

import bloomredis
from bloomredis import FilterInfo, FilterLostError, FilterMismatchError
from bloomredis.bits.encoding import Unknown
from bloomredis.cli import layouts
from bloomredis.cli.kinds import CLASSES, Kind
from bloomredis.stored.header import KINDS
from bloomredis.stored.module.filter import other_layout

_ONLY_OF: Final = {
    "window": Kind.ROTATING,
    "slices": Kind.ROTATING,
    "shards": Kind.SHARDED,
    "expansion": Kind.SCALING,
}
"""Options that only one kind has; without --kind, the option selects the kind."""
_LEAVE_OUT: Final = "leave the option out to use the stored parameters, or use another name"


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """A filter as options describe it; None for an option that was not given."""

    kind: Kind | None = None
    capacity: int | None = None
    error_rate: float | None = None
    layout: str | None = None
    window: float | None = None
    slices: int | None = None
    shards: int | None = None
    expansion: int | None = None

    @property
    def is_foreign(self) -> bool:
        """True for the layout of another system."""
        return not isinstance(layouts.layout(self.layout), str | None)

    def checked(self) -> Kind | None:
        """Return the kind that the options select, None if they allow any kind.

        Raises `ValueError` for options that contradict each other.
        """
        meant = self.kind
        for option, kind in _ONLY_OF.items():
            if getattr(self, option) is not None:
                if meant not in (None, kind):
                    raise ValueError(f"--{option} is for --kind {kind}, not for --kind {meant}")
                meant = kind
        if self.is_foreign and meant not in (None, Kind.FIXED):
            raise ValueError(f"--layout {self.layout} is another system's, so --kind {meant} cannot have it")
        if self.layout is not None and meant is Kind.COUNTING:
            raise ValueError("--kind counting has one layout only; leave out --layout")
        return Kind.FIXED if self.is_foreign else meant

    def completed(self, capacity: int, error_rate: float) -> Wanted:
        """Return a copy with these values for the parameters that were not given."""
        return replace(
            self,
            capacity=capacity if self.capacity is None else self.capacity,
            error_rate=error_rate if self.error_rate is None else self.error_rate,
        )

    def parameters(self) -> dict[str, Any]:
        """Return the given options as parameters of a filter class."""
        names = ("capacity", "error_rate", "layout", *_ONLY_OF)
        parameters = given(**{name: getattr(self, name) for name in names})
        if "layout" in parameters:
            parameters["layout"] = layouts.layout(self.layout)
        return parameters


def given(**options: Any) -> dict[str, Any]:
    """Return the options that were given, as parameters."""
    return {name: value for name, value in options.items() if value is not None}


def make(client: Any, name: str, wanted: Wanted, kind: Kind, **more: Any) -> Any:
    """Return a new filter object of that kind, without I/O."""
    parameters = wanted.parameters() | more
    if kind is Kind.ROTATING and "window" not in parameters:
        raise ValueError(
            "--kind rotating forgets what is older than its window: give --window, as in --window 1h"
        )
    return getattr(bloomredis, CLASSES[kind])(client, name, **parameters)


def opened(client: Any, name: str, layout: str | None = None) -> Any:
    """Return a stored filter as an object of its kind, or a bitmap with the layout of another system.

    A filter that has lost a part is returned too, so that it can be deleted.
    """
    if not name:
        raise ValueError("a filter's name must not be empty")
    if layout is not None:
        return _with_layout(client, name, layout)
    refused: list[FilterMismatchError] = []
    for kind in KINDS:
        try:
            return _open(client, name, kind)
        except FilterMismatchError as error:
            refused.append(error)
    raise refused[0]


def _open(client: Any, name: str, kind: str) -> Any:
    """Open a filter of that kind; if programs encode its items, open it for calls without items."""
    try:
        return _open_with(client, name, kind, None)
    except FilterMismatchError:
        with suppress(FilterMismatchError):
            return _open_with(client, name, kind, Unknown())
        raise


def _open_with(client: Any, name: str, kind: str, encode: Unknown | None) -> Any:
    """Open a filter with that encoding; add no markers to a filter of the server's module."""
    class_ = getattr(bloomredis, kind)
    if kind != CLASSES[Kind.FIXED]:
        try:
            return class_.open(client, name, encode=encode)
        except FilterLostError:
            return class_(client, name, encode=encode)
    try:
        found = class_(client, name, encode=encode)
        found.create()
    except FilterMismatchError as error:
        with other_layout(error) as layout:
            found = class_(client, name, layout=layout, encode=encode)
            found.info()
    return found


def _with_layout(client: Any, name: str, layout: str) -> Any:
    made = layouts.layout(layout)
    if not isinstance(made, str):
        return bloomredis.BloomFilter(client, name, layout=made)
    found = opened(client, name)
    stored = found.info().layout
    if stored != made:
        raise FilterMismatchError(f"{name!r} has --layout {stored}, not {made}", command=_LEAVE_OUT)
    return found


def kind_of(found: Any) -> Kind:
    """Return the kind of a filter."""
    return next(kind for kind, name in CLASSES.items() if name == type(found).__name__)


def stored_parameters(found: Any, about: FilterInfo) -> dict[str, Any]:
    """Return the parameters that a filter was created with; `about` is its info."""
    known = {"capacity": about.capacity, "error_rate": about.error_rate, "layout": about.layout}
    record = getattr(getattr(found._operations, "stored", None), "record", None)  # noqa: SLF001 - info() lacks it
    if record is None:
        return known
    own = {"shards": record.shards} if kind_of(found) is Kind.SHARDED else record.parameters
    return known | own


def check_parameters(found: Any, wanted: Wanted) -> None:
    """Raise `FilterMismatchError` unless a stored filter matches the given options."""
    kind, meant = kind_of(found), wanted.checked()
    if meant not in (None, kind):
        raise _differs(found, "kind", kind, meant)
    stored = stored_parameters(found, found.info())
    for option, value in wanted.parameters().items():
        if option in stored and not wanted.is_foreign and stored[option] != value:
            raise _differs(found, option.replace("_", "-"), stored[option], value)


def _differs(found: Any, option: str, stored: object, given: object) -> FilterMismatchError:
    return FilterMismatchError(f"{found.name!r} has --{option} {stored}, not {given}", command=_LEAVE_OUT)
