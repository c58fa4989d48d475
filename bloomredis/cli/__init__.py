"""The command `bloomredis`."""

from __future__ import annotations

import sys


def main() -> None:
    """Run the command and exit; without its extra, exit with 2 and say how to install it."""
    try:
        from bloomredis.cli.app import run  # noqa: PLC0415 - typer may be missing
    except ModuleNotFoundError as error:
        if error.name not in ("typer", "rich"):
            raise
        sys.stderr.write(f"bloomredis: {error.name} is not installed; pip install 'bloomredis[cli]'\n")
        sys.exit(2)
    run()
