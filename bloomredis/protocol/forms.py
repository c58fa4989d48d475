"""The form of each script's and command's reply; one of another form is no answer.

Replies of add, contains and remove are checked where the number of their items is known (`replies.checked`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from bloomredis.errors import ConnectionFailedError
from bloomredis.protocol.replies import unhex


def _is_hex(reply: Any) -> bool:
    try:
        unhex(reply)
    except (AttributeError, ValueError):
        return False
    return True


_KINDS: Final[Mapping[str, Callable[[Any], bool]]] = {
    "i": lambda reply: isinstance(reply, int),
    "t": lambda reply: isinstance(reply, bytes | str),
    "?": lambda reply: reply is None or isinstance(reply, bytes | str),
    "d": lambda reply: isinstance(reply, bytes | str) and reply.isdigit(),
    "h": _is_hex,
    "l": lambda reply: isinstance(reply, list | dict),  # a dict by RESP3
}
"""An integer, a text, a text or nil, decimal digits, hexadecimal digits, a list."""

_FORMS: Final[Mapping[Any, str]] = {
    **dict.fromkeys(("add_count", "allocate", "delete", "expire", "rename_new", "touch"), "i"),
    **dict.fromkeys(("extend", "release", "settle_record", "sweep_layers"), "i"),
    **dict.fromkeys(("module_delete", "module_expire", "module_load", "module_mark"), "i"),
    **dict.fromkeys(("abandon_rebuild", "end_rebuild", "or_from", "write"), "i"),
    **dict.fromkeys(("BITCOUNT", "EXISTS", "PEXPIRE", "PTTL", "STRLEN", "UNLINK", "WAIT"), "i"),
    **dict.fromkeys(("or_segment", "read", "GETRANGE"), "t"),
    **dict.fromkeys(("clear", "describe", "reserve"), "hii"),
    **dict.fromkeys(("add_layer", "adopt", "describe_layers", "record_shard", "reserve_record"), "hi"),
    **dict.fromkeys(("module_clear", "module_reserve"), "hiltt"),
    "begin_rebuild": "hh",
    "configure": "t*",
    "time": "d",
    "GET": "?",
    "BF.MEXISTS": "i*",
}
"""By the name of a script or command: a kind, or those of a list's entries; `*` is any number of them."""


def checked(name: str | bytes | int, reply: Any) -> Any:
    """Return a reply; `ConnectionFailedError` for one that this script or command never gives."""
    form = _FORMS.get(name)
    if form is None or _fits(form, reply):
        return reply
    raise ConnectionFailedError(f"{reply!r:.80} is no reply of {name!r}")


def _fits(form: str, reply: Any) -> bool:
    if len(form) == 1:
        return _KINDS[form](reply)
    if not isinstance(reply, list):
        return False
    kinds = form[0] * len(reply) if form[-1] == "*" else form
    return len(reply) == len(kinds) and all(map(_fits, kinds, reply))
