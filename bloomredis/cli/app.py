"""The commands, and the exit status of each kind of error.

* 0: success.
* 1: `check` or `remove` found nothing, or `doctor` found something critical.
* 2: wrong usage, or stdout is closed.
* 3: the server refused, did not answer, or has lost the filter.
* 4: no filter has this name.
* 128 + n: signal n ended the command.
"""

from __future__ import annotations

import sys
from typing import Annotated

import typer

import bloomredis
from bloomredis.cli import quick, stderr
from bloomredis.cli.commands import COMMANDS, MARKUP, Group, function_of
from bloomredis.errors import BloomError, FilterMismatchError, FilterNotFoundError

USAGE = 2
SERVER = 3
NOT_FOUND = 4

app = typer.Typer(
    cls=Group,
    no_args_is_help=True,
    rich_markup_mode=MARKUP,
    pretty_exceptions_enable=False,  # they print local variables, which may hold a password
)


def _print_version(wanted: bool) -> None:  # noqa: FBT001 - typer calls it so
    if wanted:
        typer.echo(f"bloomredis {bloomredis.__version__}")
        raise typer.Exit


@app.callback()
def options(
    *,
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Atomic Bloom filters on any Redis or Valkey, without a server module.

    Example: bloomredis dedupe lines.txt > new-lines.txt

    --url of a command, or BLOOMREDIS_URL, names the server: redis://user:password@host:6379/0, rediss://
    (TLS), valkey://, unix://, sentinel://host:26379/NAME, embedded://, embedded:///dir or memory://.

    Numbers may be 1e6 or 1M, rates 0.1%, times 90s, 15m, 12h, 7d or 2w; a time without a unit is in seconds.
    """


def run() -> None:
    """Run the command in sys.argv and exit; print an expected error as one line on stderr."""
    stderr.print_warnings()
    try:
        name, *words = sys.argv[1:] or [""]
        call = quick.call(function_of(name), words) if name in COMMANDS else None
        (call or app)()
    except typer.Exit as end:
        sys.exit(end.exit_code)
    except Exception as raised:
        error = _explained(raised)
        status = exit_status(error)
        if status is None:
            raise
        stderr.note(stderr.described(error))
        sys.exit(status)


def _explained(error: Exception) -> Exception:
    """Return the library's error for one that the client raised itself, such as a missing password."""
    if isinstance(error, OSError):  # of a file or a stream; clients have their own
        return error
    from bloomredis.protocol import replies

    meaning = replies.explained(error)
    return error if isinstance(meaning, replies.Refusal) else meaning


def exit_status(error: Exception) -> int | None:
    """Return the exit status for an error, by who must act; None for an unexpected error."""
    if isinstance(error, FilterNotFoundError):
        return NOT_FOUND
    if isinstance(error, FilterMismatchError | ValueError | TypeError | ImportError):
        return USAGE
    # Compared by name, so that only commands with a server import redis.
    if isinstance(error, BloomError) or "RedisError" in (kind.__name__ for kind in type(error).__mro__):
        return SERVER
    return USAGE if isinstance(error, OSError) else None
