"""One script call: EVALSHA, EVAL if the server lacks the script, WAIT if replicas must confirm."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from bloomredis.protocol.forms import checked
from bloomredis.protocol.keys import as_bytes
from bloomredis.protocol.replies import Unconfirmed, raise_explained
from bloomredis.protocol.scripts import Script, load
from bloomredis.protocol.steps import Call, Command, Op


@dataclass(frozen=True, slots=True)
class Wait:
    """Replicas that must confirm a write, and the time to wait for them.

    `touched` is a key to write to besides, if the filter's own key is no string.
    """

    replicas: int
    milliseconds: int
    touched: bytes | None = None


_TOUCH: Final = load("touch")


def tail_of(keys: Sequence[bytes], arguments: Sequence[bytes | int | str]) -> Command:
    """Return what stands behind a script's name in its command."""
    sent = [b"%d" % each if isinstance(each, int) else each for each in arguments]  # as `Command` says
    return (b"%d" % len(keys), *keys, *sent)


def call(
    script: Script,
    keys: Sequence[bytes],
    arguments: Sequence[bytes | int | str],
    wait: Wait | None = None,
    *,
    again: bool = True,
) -> Op[Any]:
    """Run a script as `called` does."""
    return called(script, tail_of(keys, arguments), wait, again=again)


def called(
    script: Script,
    tail: Command,
    wait: Wait | None = None,
    *,
    reads: bool = False,
    again: bool = True,
    heard: Sequence[Any] = (),
) -> Op[Any]:
    """Run a script by its SHA; a server that lacks the script gets it with the same call.

    That takes one more round trip, with EVAL, which cannot fail for a missing script: a SCRIPT FLUSH
    at any moment neither loses the call nor executes it twice.

    :param reads: the script is read-only, and a replica may answer.
    :param again: the call is idempotent, and may be sent again after a lost reply.
    :param heard: the reply or the error of the first sending, where that is over.
    :raises Refusal: the script refuses.
    :raises ServerRefusedError: the server does.
    :raises ConnectionFailedError: no reply came, or one of another form, or too few replicas confirmed the
        write.
    """
    try:
        try:
            command = ("EVALSHA", script.sha, *tail)
            if heard:
                reply = _heard(heard)
            elif wait is None:
                reply = yield Call([command], text=script.text if reads else "", again=again)
            else:
                reply = yield from _confirmed(command, wait, again=again)
        except Exception as error:
            if not any(kind.__name__ == "NoScriptError" for kind in type(error).__mro__):
                raise
            reply = yield from _sent(("EVAL", script.text, *tail), wait, again=again)
    except Exception as error:
        raise_explained(error)
    return checked(script.verb, reply)


def send(commands: Command | list[Command], heard: Sequence[Any] = ()) -> Op[Any]:
    """Send commands that may be sent again; raise the first error that stands among the replies.

    :param heard: the reply or the error of the first sending, where that is over.
    """
    try:
        if heard:
            reply = _heard(heard)
        else:
            reply = yield Call(commands, is_single=False) if isinstance(commands, list) else Call([commands])
    except Exception as error:
        raise_explained(error)
    if not isinstance(commands, list):
        return checked(commands[0], reply)
    for each in reply:
        if isinstance(each, Exception):
            raise_explained(each)
    return [checked(command[0], each) for command, each in zip(commands, reply, strict=True)]


def _heard(outcome: Sequence[Any]) -> Any:
    (reply,) = outcome
    if isinstance(reply, BaseException):
        raise reply
    return reply


def _sent(command: Command, wait: Wait | None, *, again: bool) -> Op[Any]:
    if wait is not None:
        return (yield from _confirmed(command, wait, again=again))
    return (yield Call([command], again=again))


def _confirmed(command: Command, wait: Wait, *, again: bool) -> Op[Any]:
    # From 7.2 on WAIT covers only writes of this connection, and an add of known items writes nothing.
    touch: Command = ("EVAL", _TOUCH.text, 1, command[3], 0)
    if wait.touched is not None:
        touch = ("SET", wait.touched, b"", "PX", wait.milliseconds)
    commands: list[Command] = [command, touch, ("WAIT", wait.replicas, wait.milliseconds)]
    reply, touched, replicas = yield Call(commands, is_single=False, again=again)
    if isinstance(reply, Exception):
        raise reply
    for result in (touched, replicas):
        if isinstance(result, Exception):  # which does not undo the write
            raise Unconfirmed(f"no replica confirmed the write: {result}")
    if checked("WAIT", replicas) < wait.replicas:
        raise Unconfirmed(
            f"only {replicas} of {wait.replicas} replicas confirmed the write within {wait.milliseconds} ms"
        )
    return reply


def parts(values: Command) -> bytes:
    """Return parts of a command."""
    texts = [as_bytes(str(value) if isinstance(value, int) else value) for value in values]
    return b"".join([b"$%d\r\n%b\r\n" % (len(text), text) for text in texts])


def beginning(values: Command, *, more: int) -> bytes:
    """Return the beginning of a command: its first parts, behind which come so many more."""
    return b"*%d\r\n%b" % (len(values) + more, parts(values))
