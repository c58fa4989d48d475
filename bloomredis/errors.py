"""What can go wrong, classed by who has to act."""

from __future__ import annotations


class BloomError(Exception):
    """The root of every error that bloomredis itself raises."""


class FilterNotFoundError(BloomError):
    """There is no filter under this name, and the caller gave no parameters to create one with."""


class FilterMismatchError(BloomError):
    """The key holds something else than the caller asked for; it was left untouched.

    It is a key of another type, a string that is no filter, or a filter with other parameters.
    The message gives what is stored and what was wanted.
    """


class FilterLostError(BloomError):
    """A filter that this object has used is gone, or was cleared or replaced by someone else.

    Every item added before is forgotten, so answering "new" would be a guess.  The error comes
    back on every call until the caller has dealt with it and calls ``reserve()`` or ``clear()``.
    """
