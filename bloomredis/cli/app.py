"""Which commands there are, and the exit status that each kind of error gets.

0 done, 1 `doctor` found something critical, 2 bad usage or a closed stdout, 3 the server refused or is
not there; ended by a signal 128 + its number.
"""

from __future__ import annotations

import sys

import typer

from bloomredis.cli.dedupe import dedupe
from bloomredis.cli.demo.command import demo
from bloomredis.cli.doctor.command import doctor
from bloomredis.cli.info import info
from bloomredis.cli.plan import plan
from bloomredis.errors import BloomError, FilterMismatchError, FilterNotFoundError

USAGE = 2
SERVER = 3

app = typer.Typer(
    help="Atomic Bloom filters on any Redis or Valkey, without a server module.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,  # they print local variables, a password among them
)
for command in (dedupe, demo, plan, info, doctor):
    app.command()(command)


def run() -> None:
    """Run the command that sys.argv asks for and exit; an expected error is one line on stderr."""
    try:
        app()
    except Exception as error:
        status = exit_status(error)
        if status is None:
            raise
        typer.echo(f"bloomredis: {' '.join(str(error).split())}", err=True)
        sys.exit(status)


def exit_status(error: Exception) -> int | None:
    """Return the exit status for an error by who must act; None for one that nobody expected."""
    if isinstance(error, FilterNotFoundError | FilterMismatchError | ValueError | TypeError | ImportError):
        return USAGE
    # By the class's name: only a command that talks to a server pays for importing redis.
    if isinstance(error, BloomError) or "RedisError" in (kind.__name__ for kind in type(error).__mro__):
        return SERVER
    return USAGE if isinstance(error, OSError) else None
