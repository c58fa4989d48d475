"""The form of each script's and command's reply: functions that read one, and raise `ValueError` for another.

Replies of add, contains and remove are read where the number of their items is known (`replies.checked`).
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import chain
from typing import TypeVar

from bloomredis.errors import ConnectionFailedError
from bloomredis.protocol.replies import unhex
from bloomredis.protocol.steps import Part, Reply

R = TypeVar("R")

Text = bytes | str
"""A text, which the client may have decoded."""
Form = Callable[[Reply], R]


def read(name: Part, form: Form[R], reply: Reply) -> R:
    """Return what a reply says; `ConnectionFailedError` for one that this script or command never gives."""
    try:
        return form(reply)
    except ValueError:
        raise ConnectionFailedError(f"{reply!r:.80} is no reply of {name!r}") from None


def anything(reply: Reply) -> Reply:
    """Return a reply whose form is looked at by the caller, or not at all."""
    return reply


def integer(reply: Reply) -> int:
    """Return an integer."""
    if not isinstance(reply, int):
        raise ValueError  # noqa: TRY004 - it is the server's
    return reply


def text(reply: Reply) -> Text:
    """Return a text."""
    if not isinstance(reply, bytes | str):
        raise ValueError  # noqa: TRY004
    return reply


def data(reply: Reply) -> bytes:
    """Return bytes that are no text."""
    if not isinstance(reply, bytes):
        raise ValueError  # noqa: TRY004
    return reply


def text_or_nil(reply: Reply) -> Text | None:
    """Return a text, or None."""
    return None if reply is None else text(reply)


def digits(reply: Reply) -> int:
    """Return the number in a text of decimal digits."""
    if not text(reply).isdigit():
        raise ValueError
    return int(text(reply))


def hexadecimal(reply: Reply) -> bytes:
    """Return the bytes in a text of hexadecimal digits."""
    return unhex(text(reply))


def entries(reply: Reply) -> list[Reply]:
    """Return a list."""
    if not isinstance(reply, list):
        raise ValueError  # noqa: TRY004
    return reply


def integers(reply: Reply) -> list[int]:
    """Return a list of integers."""
    return list(map(integer, entries(reply)))


def texts(reply: Reply) -> list[Text]:
    """Return a list of texts."""
    return list(map(text, entries(reply)))


def state(reply: Reply) -> tuple[bytes, int, int]:
    """Return a filter's header, the length of its string, and its time to live in ms."""
    head, size, ttl = entries(reply)
    return hexadecimal(head), integer(size), integer(ttl)


def record(reply: Reply) -> tuple[bytes, int]:
    """Return a record and its time to live in ms, or what else there is to say of it."""
    stored, number = entries(reply)
    return hexadecimal(stored), integer(number)


def both_headers(reply: Reply) -> tuple[bytes, bytes]:
    """Return the headers of a filter that is being rebuilt and of its successor."""
    one, successor = entries(reply)
    return hexadecimal(one), hexadecimal(successor)


ModuleReply = tuple[bytes, int, list[Reply], Text, Text]
"""The generation of a new filter, then PTTL, `BF.INFO`, `BF.SCANDUMP`, and the signs of a generation."""


def module_state(reply: Reply) -> ModuleReply:
    """Return what the scripts for the module say of a filter."""
    created, ttl, info, dump, answers = entries(reply)
    facts = list(chain.from_iterable(info.items())) if isinstance(info, dict) else entries(info)  # RESP3
    return hexadecimal(created), integer(ttl), facts, text(dump), text(answers)
