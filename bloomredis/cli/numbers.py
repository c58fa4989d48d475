"""Options that several commands have, with their limits."""

from __future__ import annotations

from typing import Annotated, Final

import typer

MOST: Final = 2**62

Capacity = Annotated[
    int | None,
    typer.Option(
        min=1, max=MOST, metavar="ITEMS", help="Items that the filter is made for.", show_default=False
    ),
]
ErrorRate = Annotated[
    float | None,
    typer.Option(metavar="RATE", help="False-positive rate at that many items.", show_default=False),
]
