"""The check that this program encodes items as the stored filter's items were encoded."""

from __future__ import annotations

from typing import Final

from bloomredis.bits.encoding import OWN
from bloomredis.errors import FilterMismatchError

OTHER: Final = -1
"""An unknown encoding other than this program's."""


def check_encoding(name: str, found: int | None, given: int | None) -> None:
    """Raise `FilterMismatchError` unless the stored items and those of this program are encoded alike.

    :param found: the number of the stored encoding (`bits.encoding.number_of`).
    :param given: the number of this program's `encode=`; None if any filter will do.
    """
    if given in (None, found):
        return
    if not found:
        says = "holds items that are not encoded"
    elif not given:
        says = "holds encoded items"
    elif found == OTHER:
        says = "holds items of another encode=, or of keyed() with another secret"
    elif OWN in (found, given):
        says = "holds items of another encode=, and only one of the two is keyed()"
    else:
        says = "holds items that were encoded by keyed() with another secret"
    raise FilterMismatchError(
        f"{name!r} and this call encode items differently: the filter {says}",
        advice="give the encode= that the filter was created with, or use another name"
        if found
        else "give no encode=, or use another name",
        command="the command cannot encode items, so it cannot add or check any",
    )
