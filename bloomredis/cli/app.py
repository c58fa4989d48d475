"""The commands, and the exit status of each kind of error.

0 success, 1 a `check` that found nothing or a critical finding of `doctor`, 2 wrong usage or a closed
stdout, 3 the server refused or did not answer; 128 + its number after a signal.
"""

from __future__ import annotations

import sys
from importlib.metadata import version
from typing import Annotated

import typer

from bloomredis.cli import messages
from bloomredis.cli.dedupe import dedupe
from bloomredis.cli.demo.command import demo
from bloomredis.cli.doctor.command import doctor
from bloomredis.cli.export import export
from bloomredis.cli.importing import import_
from bloomredis.cli.info import info
from bloomredis.cli.items import add, check
from bloomredis.cli.manage import create, delete
from bloomredis.cli.plan import plan
from bloomredis.cli.portable import copy, merge, restore, save
from bloomredis.cli.rebuild import rebuild
from bloomredis.cli.watch import watch
from bloomredis.errors import BloomError, FilterMismatchError, FilterNotFoundError

USAGE = 2
SERVER = 3

app = typer.Typer(
    no_args_is_help=True,
    pretty_exceptions_enable=False,  # they print local variables, which may hold a password
)


def _print_version(wanted: bool) -> None:  # noqa: FBT001 - typer calls it so
    if wanted:
        typer.echo(f"bloomredis {version('bloomredis')}")
        raise typer.Exit


@app.callback()
def options(
    *,
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Atomic Bloom filters on any Redis or Valkey, without a server module."""


for command in (
    *(dedupe, create, add, check, info, delete),
    *(save, restore, copy, merge, rebuild),
    *(plan, doctor, watch, export, demo),
):
    app.command()(command)
app.command("import")(import_)


def run() -> None:
    """Run the command in sys.argv and exit; print an expected error as one line on stderr."""
    try:
        app()
    except Exception as error:
        status = exit_status(error)
        if status is None:
            raise
        typer.echo(f"bloomredis: {messages.in_options(error)}", err=True)
        sys.exit(status)


def exit_status(error: Exception) -> int | None:
    """Return the exit status for an error, by who must act; None for an unexpected error."""
    if isinstance(error, FilterNotFoundError | FilterMismatchError | ValueError | TypeError | ImportError):
        return USAGE
    # Compared by name, so that only commands with a server import redis.
    names = {kind.__name__ for kind in type(error).__mro__}
    if isinstance(error, BloomError) or names & {"RedisError", "RedisClusterException"}:
        return SERVER
    return USAGE if isinstance(error, OSError) else None
