"""How a script is called: commands out, replies and errors back, without any I/O.

An operation is a generator that yields commands and is sent their replies (or has the client's
error thrown in); what it returns is the caller's answer.  The drivers in `client` and `asyncio`
execute commands and know nothing of what they mean.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import Any, NoReturn, TypeVar

from bloomredis.scripts import Script

T = TypeVar("T")

Command = tuple[str | bytes | int, ...]
Op = Generator[Command, Any, T]
"""An operation that ends with a T."""


class Refusal(Exception):  # noqa: N818 - it is turned into a public error before a caller can see it
    """A script's own refusal: `word` says which, `detail` is what it adds."""

    def __init__(self, word: str, detail: str) -> None:
        super().__init__(f"{word} {detail}")
        self.word = word
        self.detail = detail


MISSING = "BLOOMMISSING"
FOREIGN = "BLOOMFOREIGN"
CHANGED = "BLOOMCHANGED"
ARGUMENT = "BLOOMARGUMENT"
WRONG_TYPE = "WRONGTYPE"
_WORDS = frozenset((MISSING, FOREIGN, CHANGED, ARGUMENT, WRONG_TYPE))


def call(script: Script, keys: Sequence[bytes], arguments: Sequence[bytes | int]) -> Op[Any]:
    """Run a script by its SHA; a server that does not know it is taught with the same call.

    That is one more round trip, with EVAL, which cannot fail for a missing script: a SCRIPT FLUSH
    at any moment neither loses the call nor makes it run twice.  Raises `Refusal` where the script
    refuses; every other error of the client passes through.
    """
    tail = (len(keys), *keys, *arguments)
    try:
        return (yield ("EVALSHA", script.sha, *tail))
    except Exception as error:
        if not _is_noscript(error):
            _reraise(error)
    try:
        return (yield ("EVAL", script.text, *tail))
    except Exception as error:
        _reraise(error)


def _is_noscript(error: Exception) -> bool:
    # By the class's name, since redis and valkey each have their own; the server's texts differ.
    return any(kind.__name__ == "NoScriptError" for kind in type(error).__mro__)


def _reraise(error: Exception) -> NoReturn:
    word, _, detail = str(error).partition(" ")
    if word in _WORDS:
        raise Refusal(word, detail) from error
    raise error
