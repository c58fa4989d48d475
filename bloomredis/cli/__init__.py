"""The command `bloomredis`."""

from __future__ import annotations

import os
import sys
from signal import SIGINT
from typing import NoReturn

from bloomredis import __version__
from bloomredis.cli.streams import open_closed


def main() -> None:
    """Run the command and exit; exit with status 2 if stdout is closed or the extra is not installed."""
    if "stdout" in open_closed():  # before the imports below, and before items are added whose output is lost
        _refuse(f"standard output is closed; to discard the output, redirect it to {os.devnull}")
    if sys.argv[1:] == ["--version"]:  # without typer, which takes longer to import than Python to start
        sys.stdout.write(f"bloomredis {__version__}\n")
        return
    try:
        from bloomredis.cli.app import run

        run()
    except KeyboardInterrupt:  # before the command hears signals, or where it does not
        sys.exit(128 + SIGINT)
    except ModuleNotFoundError as error:
        if error.name not in ("typer", "rich"):
            raise
        _refuse(f"{error.name} is not installed; pip install 'bloomredis[cli]'")


def _refuse(reason: str) -> NoReturn:
    sys.stderr.write(f"bloomredis: {reason}\n")
    sys.exit(2)
