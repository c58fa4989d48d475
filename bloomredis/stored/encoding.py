"""The encoding of a stored filter's items: through what they went before they were hashed."""

from __future__ import annotations

from typing import Final

from bloomredis.bits.encoding import OWN
from bloomredis.errors import FilterMismatchError

OTHER: Final = -1
"""Some encoding that is not known."""


def check(name: str, found: int | None, given: int | None) -> None:
    """Raise `FilterMismatchError` unless the items of what is stored are encoded as those of this program.

    :param found: the number in the header (`bits.encoding.number_of`).
    :param given: that of the `encode=` of this program; None for one that fits any filter.
    """
    if given in (None, found):
        return
    if not found:
        says = "holds items as they are: give no encode="
    elif not given:
        says = "holds items that its program encodes: give the encode= that it was made with"
    elif found == OTHER:
        says = "holds items of another encode=, or of keyed() with another secret"
    elif OWN in (found, given):
        says = "holds items of another encode=: keyed() on one side, another function on the other"
    else:
        says = "holds items that were encoded by keyed() with another secret"
    raise FilterMismatchError(f"{name!r} {says}, or use another name")
