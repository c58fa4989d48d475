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
        says, way_out = "holds items that are not encoded", "give no encode="
    elif not given:
        says, way_out = "holds encoded items", "give the encode= that it was created with"
    elif found == OTHER:
        says, way_out = "holds items of another encode=, or of keyed() with another secret", "give that one"
    elif OWN in (found, given):
        says, way_out = "holds items of another encode=, keyed() on one side alone", "give that one"
    else:
        says, way_out = "holds items that were encoded by keyed() with another secret", "give that one"
    raise FilterMismatchError(
        f"{name!r} {says}",
        advice=f"{way_out}, or use another name",
        command="the command cannot encode items, so it cannot add or check any",
    )
