"""The Lua files: documented as they are, and found however the package is installed."""

from __future__ import annotations

import re
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from bloomredis.protocol import scripts

ROOT = Path(__file__).parents[2]
VERBS = sorted(scripts.verbs())


def test_the_verbs() -> None:
    """Every script of the directory is found."""
    assert {path.stem for path in (ROOT / "lua").glob("*.lua")} == set(VERBS)


@pytest.mark.parametrize("verb", VERBS)
def test_documented_slots_are_those_read(verb: str) -> None:
    """The header comment of a script names every KEYS and ARGV slot that its body reads, and no other."""
    lines = (ROOT / "lua" / f"{verb}.lua").read_text().splitlines()
    slot = re.compile(r"(?:KEYS|ARGV)\[[^\]]+\]")
    comments = {found for line in lines if line.startswith("--") for found in slot.findall(line)}
    body = "\n".join(line for line in lines if not line.startswith("--"))
    code = set(slot.findall(body)) | ({"KEYS[1]"} if re.search(r"\bKEYS\b(?!\[)", body) else set())
    assert comments == code
    assert any(line.startswith("-- Reply: ") for line in lines)


@pytest.mark.parametrize("path", sorted((ROOT / "lua" / "include").glob("*.lua")), ids=lambda p: p.stem)
def test_includes_touch_no_slots(path: Path) -> None:
    """Only the verbs read KEYS and ARGV."""
    assert not re.search(r"\b(KEYS|ARGV)\b", path.read_text())


@pytest.mark.parametrize("layered", [False, True])
@pytest.mark.parametrize("verb", VERBS)
def test_no_globals(verb: str, *, layered: bool) -> None:
    """Everything is local: a script that assigns a global breaks the later ones on some servers."""
    for line in scripts.load(verb, layered=layered).text.splitlines():
        assert not re.match(r"(?!local |for )(function|[A-Za-z_][\w, ]*=[^=])", line)


@pytest.mark.parametrize("layered", [False, True])
@pytest.mark.parametrize("verb", VERBS)
def test_constants_are_defined_before_they_are_used(verb: str, *, layered: bool) -> None:
    """A script includes what it needs: an unknown name would be nil until it is met."""
    code = re.sub(r"--.*|'[^']*'", "", scripts.load(verb, layered=layered).text)
    for name in set(re.findall(r"(?<![\w.])[A-Z][A-Z_]+\b", code)) - {"KEYS", "ARGV"}:
        assert re.search(rf".*\b{name}\b", code)[0].startswith("local ")  # type: ignore[index]  # it was found


@pytest.mark.parametrize("verb", VERBS)
def test_every_include_is_resolved(verb: str) -> None:
    """What a script needs is in it, once."""
    for layered in (False, True):
        text = scripts.load(verb, layered=layered).text
        assert "include:" not in text
        functions = re.findall(r"^local function (\w+)", text, re.MULTILINE)
        assert len(functions) == len(set(functions))


def test_only_filters_in_layers_pay_for_layers() -> None:
    """The script for others has no code for layers."""
    assert "slices_of" in scripts.load("add", layered=True).text
    assert "slices_of" not in scripts.load("add").text


INSTALL = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check"]
LOAD = (
    "from bloomredis.protocol import scripts;"
    "print(*sorted(v for v in scripts.verbs() if scripts.load(v).text))"
)


def verbs_seen_by(python: Path) -> list[str]:
    """Load every script in another interpreter, which borrows only the dependencies of this one."""
    site = sysconfig.get_path("purelib")
    command = f"import sys; sys.path.append({site!r}); {LOAD}"
    done = subprocess.run(
        [python, "-I", "-c", command], check=True, capture_output=True, text=True, cwd=python.parent
    )
    return done.stdout.split()


@pytest.fixture(scope="module")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A wheel and an sdist of this tree."""
    out = tmp_path_factory.mktemp("dist")
    subprocess.run(
        [sys.executable, "-m", "build", "--no-isolation", "--outdir", out, ROOT],
        check=True,
        capture_output=True,
    )
    return out


@pytest.mark.parametrize("kind", ["wheel", "sdist", "editable"])
def test_every_way_of_installing_finds_the_scripts(kind: str, dist: Path, tmp_path: Path) -> None:
    """A wheel, an sdist and an editable install each load every script, away from the checkout."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path / "v"], check=True)
    python = tmp_path / "v" / "bin" / "python"
    ways: dict[str, list[str | Path]] = {
        "wheel": [next(dist.glob("*.whl"))],
        "sdist": [next(dist.glob("*.tar.gz"))],
        "editable": ["--editable", ROOT],
    }
    subprocess.run(
        [*INSTALL, "--python", python, "install", "--no-deps", "--no-build-isolation", *ways[kind]],
        check=True,
        env={"PYTHONPATH": sysconfig.get_path("purelib"), "PATH": "/usr/bin:/bin"},
    )
    assert verbs_seen_by(python) == VERBS
