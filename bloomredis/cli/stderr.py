"""Lines on stderr: errors, warnings and notes of the command, and warnings of the library."""

from __future__ import annotations

import logging
from contextlib import suppress

import typer

from bloomredis.errors import BloomError


def problem(error: object) -> str:
    """Return what is wrong, without the way out; for an error of the system, the file and the reason."""
    if isinstance(error, BloomError):
        return error.problem
    if isinstance(error, OSError) and error.strerror:
        return f"{error.filename}: {error.strerror}" if error.filename else error.strerror
    return str(error)


def described(error: object) -> str:
    """Return an error's text as one line, with the way out for a user of the command."""
    command = error.command if isinstance(error, BloomError) else ""
    return " ".join("; ".join(filter(None, (problem(error), command))).split())


def warn(text: str) -> None:
    """Print a warning on stderr."""
    note(f"warning: {text}")


def note(text: str) -> None:
    """Print a line on stderr, if it can be written."""
    with suppress(OSError, ValueError):
        typer.echo(f"bloomredis: {text}", err=True)


class Warnings(logging.Handler):
    """A logging handler that prints the library's log as warnings of the command."""

    def emit(self, record: logging.LogRecord) -> None:
        """Print a record."""
        given = record.args if isinstance(record.args, tuple) else ()
        told = tuple(described(each) if isinstance(each, BloomError) else each for each in given)
        warn(str(record.msg) % told if told else record.getMessage())


def print_warnings(*, but: type[BloomError] | None = None) -> None:
    """Print the library's warnings from now on.

    :param but: skip warnings of this error, since the command prints its own.
    """
    logger = logging.getLogger("bloomredis")
    logger.propagate = False
    logger.handlers = [each for each in logger.handlers if not isinstance(each, Warnings)]
    handler = Warnings(logging.WARNING)
    if but is not None:
        handler.addFilter(lambda record: not any(isinstance(each, but) for each in record.args or ()))
    logger.addHandler(handler)
