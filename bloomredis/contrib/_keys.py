"""Records without a key: handed on unchecked, dropped, or refused."""

from __future__ import annotations

from typing import Final, Literal, get_args

Missing = Literal["keep", "drop", "raise"]
"""Treatment of a record without a key."""

TREATMENTS: Final = get_args(Missing)


def checked(missing: Missing) -> Missing:
    """Return a treatment.  Raises `ValueError` if there is no such treatment."""
    if missing not in TREATMENTS:
        raise ValueError(f'missing must be "keep", "drop" or "raise", not {missing!r}')
    return missing


def is_kept(missing: Missing, record: str) -> bool:
    """Return whether a record without a key is handed on unchecked.

    :param record: the record's place, for the error.
    :raises TypeError: records without a key are refused.
    """
    if missing == "raise":
        raise TypeError(f'{record} has no key: missing="keep" hands it on unchecked, "drop" leaves it out')
    return missing == "keep"
