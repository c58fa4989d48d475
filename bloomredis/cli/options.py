"""Options and arguments that several commands share, with their parsers and limits."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Annotated, Any, Final, TypeVar

import typer

from bloomredis.cli import durations
from bloomredis.cli.kinds import Kind

T = TypeVar("T")
MOST: Final = 2**62

_POWERS: Final[dict[str, int]] = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "b": 10**9}
_NUMBER: Final = re.compile(r"(\d+(?:_\d+)*)(\.\d+)?(?:e\+?(\d{1,2}))?([kmgb]?)", re.IGNORECASE)
_IN_THOUSANDS: Final = re.compile(r"\d{1,3}(,\d{3})+")


def option(parse: Callable[[str], T], metavar: str, text: str, *names: str, **more: Any) -> Any:
    """Return an option whose text `parse` reads; its `ValueError` is reported as wrong usage."""
    more = {"show_default": False} | more
    return typer.Option(*names, parser=_told(parse), metavar=metavar, help=text, **more)


def argument(parse: Callable[[str], T], metavar: str, text: str) -> Any:
    """Return a positional argument whose text `parse` reads, as `option` does."""
    return typer.Argument(parser=_told(parse), metavar=metavar, help=text, show_default=False)


def _told(parse: Callable[[str], T]) -> Callable[[str | T], T]:
    def read(given: str | T) -> T:
        try:
            return parse(given) if isinstance(given, str) else given  # the default is no str
        except ValueError as error:
            raise typer.BadParameter(str(error)) from None

    return read


def whole(least: int = 1, most: int = MOST) -> Callable[[str], int]:
    """Return a reader of whole numbers, which may be written as 1000000, 1,000,000, 1_000_000, 1e6 or 1M."""

    def read(text: str) -> int:
        given = text.strip()
        found = _NUMBER.fullmatch(given.replace(",", "") if _IN_THOUSANDS.fullmatch(given) else given)
        if not found:
            raise ValueError(f"expected a whole number, such as 1000000, 1e6 or 1M, not {text!r}")
        digits, fraction = found[1].replace("_", ""), (found[2] or ".")[1:]
        zeros = "0" * int(found[3] or 0)
        scaled = int(digits + fraction + zeros) * _POWERS[found[4].lower()]
        number, rest = divmod(scaled, int("1" + "0" * len(fraction)))
        if rest:
            raise ValueError(f"expected a whole number, not {text!r}")
        if not least <= number <= most:
            limits = f"of at least {least}" if most == MOST and number < least else f"from {least} to {most}"
            raise ValueError(f"expected a number {limits}, not {text!r}")
        return number

    return read


def at_least(least: float) -> Callable[[str], float]:
    """Return a reader of a number of seconds."""

    def read(text: str) -> float:
        try:
            value = float(text)
        except ValueError:
            raise ValueError(f"expected a number of seconds, such as 2 or 0.5, not {text!r}") from None
        if not least <= value < float("inf"):
            raise ValueError(f"expected at least {least:g} seconds, not {text!r}")
        return value

    return read


def share(text: str) -> float:
    """Return a rate, written as 0.001, 1e-3 or 0.1%."""
    number = text.strip().removesuffix("%")
    try:
        value = float(number)
    except ValueError:
        raise ValueError(f"expected a rate between 0 and 1, such as 0.001 or 0.1%, not {text!r}") from None
    rate = value / 100 if "%" in text else value
    if not 0 < rate < 1:
        raise ValueError(f"a rate must lie strictly between 0 and 1, not {text!r}")
    return rate


def time(text: str) -> float:
    """Return seconds, written as 90s, 15m, 12h, 7d or 2w."""
    return durations.seconds(text)


def kind(text: str) -> Kind:
    """Return a kind by its name."""
    if text not in tuple(Kind):
        raise ValueError(f"{text!r} is not one of {', '.join(Kind)}")
    return Kind(text)


Name = Annotated[str, typer.Argument(metavar="NAME", help="The filter's key.", show_default=False)]
Names = Annotated[list[str], typer.Argument(metavar="NAME", help="The filters' keys.", show_default=False)]
Items = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="ITEM", help="Items; without any, or for -, the lines of stdin.", show_default=False
    ),
]
KeepCr = Annotated[bool, typer.Option("--keep-cr", help="Keep the CR of lines that end in CR LF.")]
Count = Annotated[bool, typer.Option("--count", help="Print only totals.")]


def kind_option(default: str) -> Any:
    """Return the option `--kind`."""
    return option(kind, "KIND", f"{', '.join(Kind)} (default: {default}).", autocompletion=lambda: list(Kind))


Capacity = Annotated[int | None, option(whole(), "ITEMS", "Number of items that the filter is made for.")]
ErrorRate = Annotated[float | None, option(share, "RATE", "False-positive rate at that many items.")]
Window = Annotated[
    float | None,
    option(time, "TIME", "Rotating filters: how long they remember an item."),
]
Slices = Annotated[
    int | None, option(whole(1, 64), "N", "Rotating filters: slices of a window (default: 4).")
]
Shards = Annotated[int | None, option(whole(1, 4096), "N", "Sharded filters: number of keys.")]
Expansion = Annotated[int | None, option(whole(), "N", "Scaling filters: growth a layer (default: 2).")]
OtherUrl = Annotated[
    str | None,
    typer.Option(metavar="URL", help="The other server, if it differs from --url.", show_default=False),
]
