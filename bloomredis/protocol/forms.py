"""Reply forms: functions that parse the reply of a script or command, or raise `ValueError`.

Replies of add, contains and remove depend on the number of items; `replies.checked` checks them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import chain
from typing import TypeVar

from bloomredis.errors import ConnectionFailedError
from bloomredis.protocol.explanations import AGAIN
from bloomredis.protocol.replies import unhex
from bloomredis.protocol.steps import Part, Reply

R = TypeVar("R")

Text = bytes | str
"""A text reply, which the client may have decoded."""
Form = Callable[[Reply], R]


def read(name: Part, form: Form[R], reply: Reply) -> R:
    """Return the value of a reply; `ConnectionFailedError` if this script or command never replies so."""
    try:
        return form(reply)
    except ValueError:
        raise ConnectionFailedError(f"{reply!r:.80} is no reply of {name!r}", advice=AGAIN) from None


def anything(reply: Reply) -> Reply:
    """Return a reply as it is; its caller parses or ignores it."""
    return reply


def integer(reply: Reply) -> int:
    """Return the integer of a reply."""
    if not isinstance(reply, int):
        raise ValueError  # noqa: TRY004 - the server's mistake, not the caller's
    return reply


def text(reply: Reply) -> Text:
    """Return the text of a reply, decoded or not."""
    if not isinstance(reply, bytes | str):
        raise ValueError  # noqa: TRY004
    return reply


def data(reply: Reply) -> bytes:
    """Return the bytes of a reply that must not have been decoded."""
    if not isinstance(reply, bytes):
        raise ValueError  # noqa: TRY004
    return reply


def data_or_done(reply: Reply) -> bytes | None:
    """Return the bytes of a reply; None if the call was executed before, and the reply is gone."""
    return None if isinstance(reply, int) and reply == 1 else data(reply)


def text_or_nil(reply: Reply) -> Text | None:
    """Return the text of a reply; None if it is nil."""
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
    """Return the list of a reply."""
    if not isinstance(reply, list):
        raise ValueError  # noqa: TRY004
    return reply


def integers(reply: Reply) -> list[int]:
    """Return the list of integers of a reply."""
    return list(map(integer, entries(reply)))


def texts(reply: Reply) -> list[Text]:
    """Return the list of texts of a reply."""
    return list(map(text, entries(reply)))


def texts_or_nil(reply: Reply) -> list[Text | None]:
    """Return the list of texts of a reply, with None for each nil."""
    return list(map(text_or_nil, entries(reply)))


def state(reply: Reply) -> tuple[bytes, int, int]:
    """Return a filter's header, the length of its string, and its time to live in ms."""
    head, size, ttl = entries(reply)
    return hexadecimal(head), integer(size), integer(ttl)


def created(reply: Reply) -> tuple[tuple[bytes, int, int], str]:
    """Return the state of a filter; and, if it is new and large, the policy that may evict it."""
    found = entries(reply)
    return state(found[:3]), _policy(found[3:])


def record(reply: Reply) -> tuple[bytes, int]:
    """Return a record and the number beside it, such as its time to live in ms."""
    stored, number = entries(reply)
    return hexadecimal(stored), integer(number)


def begun(reply: Reply) -> tuple[tuple[bytes, int], str]:
    """Return a layer record; and, if its newest layer is new and large, the policy that may evict it."""
    found = entries(reply)
    return record(found[:2]), _policy(found[2:])


def _policy(rest: Sequence[Reply]) -> str:
    if not rest:
        return ""
    (policy,) = map(text, rest)
    return policy if isinstance(policy, str) else policy.decode()


ModuleReply = tuple[bytes, int, list[Reply], Text, Text]
"""The generation of a new filter, PTTL, `BF.INFO`, `BF.SCANDUMP`, and answers that tell the generation."""


def module_state(reply: Reply) -> ModuleReply:
    """Return the state of a module's filter from a script's reply."""
    created, ttl, info, dump, answers = entries(reply)
    facts = list(chain.from_iterable(info.items())) if isinstance(info, dict) else entries(info)  # RESP3
    return hexadecimal(created), integer(ttl), facts, text(dump), text(answers)
