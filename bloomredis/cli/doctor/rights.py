"""The rights of the user, compared with the commands and keys that a filter needs.

ACL DRYRUN checks them without running anything.  If ACL DRYRUN is missing (before 7.0) or forbidden, a script
runs each command in a form that changes nothing.  Either the command only reads, or its arguments are wrong:
the server reports that after it has checked the permissions, and before it looks at the key.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from typing import Any, Final

from redis.exceptions import ResponseError

from bloomredis.protocol.keys import auxiliary_prefix

NEEDED: Final = {
    # EVAL and EVALSHA cannot be run in a script; `facts` tries them.
    "getrange": "FILTER 0 0",
    "setrange": "FILTER -1 x",
    "setbit": "FILTER -1 1",
    "getbit": "FILTER 0",
    "bitcount": "FILTER 0 0",
    "strlen": "FILTER",
    "exists": "FILTER",
    "bitop": "nonsense BESIDE FILTER",
    "bitfield": "FILTER GET u4 0",
    "unlink": "BESIDE",  # this key does not exist
    "get": "BESIDE",
    "set": "BESIDE x nonsense",
    "pttl": "FILTER",
    "pexpire": "FILTER nonsense",
    "persist": "BESIDE",
    "rename": "BESIDE BESIDE",
    "time": "",
    "wait": "0 0",
}
"""Commands of the ACL rule in docs/rights.md, with arguments that change nothing."""

OF_MODULE: Final = {
    "bf.add": "FILTER",
    "bf.exists": "FILTER",
    "bf.info": "FILTER nonsense",
    "bf.insert": "FILTER",
    "bf.madd": "FILTER",
    "bf.mexists": "FILTER",
    "bf.scandump": "FILTER",
}
"""Further commands, for a filter of the server's module, with too few or wrong arguments."""

_ANYWHERE: Final = "bloomredis:doctor"
_DENIED: Final = {
    # The texts of ACL DRYRUN and of commands in scripts, on servers from 6.2 on.  Texts about keys come
    # first, since any text may be part of a key.
    "keys": ("permissions to access ", "can't access "),
    "command": ("permissions to run ", "can't run ", "nknown ", " not found"),
}


@dataclass(frozen=True, slots=True)
class Rights:
    """Commands and keys that are denied to a user, and commands that could not be tried."""

    user: str | None = None
    commands: Sequence[str] = ()
    """Commands that are forbidden, renamed or disabled."""

    keys: str | None = None
    """The server's text if the user may not use the filter's keys."""

    unchecked: Mapping[str, str] = field(default_factory=dict)
    """Commands that could not be tried, with the reason."""


def rights(client: Any, name: str | None, *, of_module: bool = False) -> Rights:
    """Try every command on the keys of a filter; without a name, keys are not checked."""
    needed = NEEDED | OF_MODULE if of_module else NEEDED
    key = (name or _ANYWHERE).encode()
    keys = [key, auxiliary_prefix(key) + b"doctor:" + secrets.token_hex(8).encode()]
    user = _user(client)
    answers = (_dry(client, user, keys, needed) if user else None) or _tried(client, keys, needed)
    if isinstance(answers, str):
        about_keys = name is not None and _denied(answers) == "keys"
        return Rights(user, (), answers if about_keys else None, dict.fromkeys(needed, answers))
    answered = dict(zip(needed, answers, strict=True))
    return Rights(
        user,
        [command for command, answer in answered.items() if _denied(answer) == "command"],
        next((answer for answer in answers if name is not None and _denied(answer) == "keys"), None),
        {command: answer for command, answer in answered.items() if "not allowed from script" in answer},
    )


def _user(client: Any) -> str | None:
    try:
        return _text(client.acl_whoami())
    except ResponseError:
        return None


def _dry(client: Any, user: str, keys: Sequence[bytes], needed: Mapping[str, str]) -> list[str] | None:
    """Return ACL DRYRUN's answer to each command, None if the server lacks ACL DRYRUN."""
    pipe = client.pipeline(transaction=False)
    for command, arguments in needed.items():
        pipe.execute_command("ACL DRYRUN", user, command, *_filled(arguments, keys))
    answers = pipe.execute(raise_on_error=False)
    # The reply to a denied command is a text.  An error means a renamed command, or that ACL is refused.
    if isinstance(answers[0], ResponseError) and " not found" not in str(answers[0]):
        return None
    return [_text(answer) for answer in answers]


def _tried(client: Any, keys: Sequence[bytes], needed: Mapping[str, str]) -> list[str] | str:
    """Run each command in a script; return the answers, or the refusal of the script."""
    commands = [f"{command} {arguments}" for command, arguments in needed.items()]
    try:
        return [_text(answer) for answer in client.eval(_script(), len(keys), *keys, *commands)]
    except ResponseError as error:
        return one_line(error)


@cache
def _script() -> str:
    return (files("bloomredis.cli.doctor") / "rights.lua").read_text("utf-8")


def _filled(arguments: str, keys: Iterable[bytes]) -> list[str | bytes]:
    names = dict(zip(("FILTER", "BESIDE"), keys, strict=True))
    return [names.get(word, word) for word in arguments.split()]


def _text(answer: Any) -> str:
    return one_line(answer.decode(errors="replace") if isinstance(answer, bytes) else answer)


def one_line(text: object) -> str:
    """Return a server's text as one line."""
    return " ".join(str(text).split())


def _denied(answer: str) -> str | None:
    """Return "keys" or "command", depending on what the answer denies; None if it denies neither."""
    for subject, phrases in _DENIED.items():
        if any(phrase in answer for phrase in phrases):
            return subject
    return None
